package messages

import "time"

// Limits of wire version 1. Every decoder refuses what goes beyond them, and every
// encoder refuses to write what a reader would refuse.
const (
	MaxPayload   = 1 << 20   // bytes of one message's payload
	ChunkSize    = 512 << 10 // bytes of every chunk of a blob but the last
	MaxBlob      = 128 << 20 // stored bytes of a blob
	MaxExpanded  = 256 << 20 // bytes of a payload after decompression
	MaxRatio     = 1024      // expanded bytes per stored byte, beyond MinExpanded: regular layouts reach 500
	MinExpanded  = 256 << 10 // bytes that any payload may expand to
	MaxDepth     = 8         // nested arrays and maps
	MaxWorld     = 1 << 14   // ranks of a run
	MaxSources   = 1 << 20   // sources of a layout
	MaxShards    = 1 << 21   // shards of a layout
	MaxDims      = 8         // dimensions of a source
	MaxDim       = 1 << 48   // elements along a dimension
	MaxRegions   = 1 << 12   // regions of an endpoint
	MaxName      = 512       // bytes of a source's name
	MaxNames     = 64 << 20  // bytes of all names of a layout
	MaxBoxValues = 1 << 24   // values of a layout's Box, and of its Stride
	MaxGroups    = 1 << 17   // groups of a layout
	MaxText      = 4 << 10   // bytes of any other text
	MaxMetadata  = 256 << 10 // bytes of a transport's metadata
	MaxAccess    = 16        // transports of an endpoint
	MaxTiles     = 1 << 24   // tile digests of a rank
	MaxList      = 1 << 10   // entries of the lists of a status
)

// inlineBlob is how many bytes of tile digests and endpoints ride in the table
// itself. A reader accepts inline blobs of any size that fits a payload.
const inlineBlob = 64 << 10

// headerRoom is what a payload leaves of a message for its headers, in bytes.
const headerRoom = 4 << 10

// maxTTL is the longest life of a lease.
const maxTTL = time.Hour

// maxNameRatio bounds what front-coded names expand to, per byte of their columns.
const maxNameRatio = 64
