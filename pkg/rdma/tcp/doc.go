// Package tcp is the transport that is always there: pure Go, one-sided in spirit. A server answers ranges of its
// registered regions to readers that hold the endpoint's capability, and never anything else; it takes no part in
// what the reader does with them.
//
// # Framing, version 1
//
// Fixed-width integers are little-endian; uvarint and varint are those of encoding/binary. A string is a uvarint
// length and its bytes.
//
//	greeting  server→reader   "DRYDOCK1" | nonce[16]
//	hello     reader→server   u16 nbytes | proof[32] | nonce[16] | incarnation string | lease string
//	welcome   server→reader   u16 nbytes | status u8 | proof[32] | text string | maxBytes uvarint | maxSegments uvarint
//	request   reader→server   u32 nbytes | id uvarint | count uvarint | count × segment
//	segment                   region uvarint | src uvarint | run uvarint | outer uvarint | outer × (n uvarint, stride varint)
//	response  server→reader   status u8 | id u64 | nbytes u64 | nbytes × payload | trailer
//	trailer   server→reader   status u8 | id u64
//
// The capability is 32 random bytes in the Access metadata and never crosses the wire. The reader's proof is
// HMAC-SHA256(capability, "reader" | server nonce | reader nonce | incarnation | 0 | lease), the server's is
// HMAC-SHA256(capability, "server" | server nonce | reader nonce): whoever took over the port of a dead endpoint
// knows neither. The proof binds a connection to one incarnation and one lease: the name under which the reader
// holds its leases. A gate (Transport.Guard) may refuse a connection, and each request by the regions that it names.
//
// The payload is the segments' bytes packed: segments in order, outer dimensions row-major, then along the run.
// Status 0 is yes. Otherwise the payload of a response is a text that says why, there is no trailer, and the
// connection stays usable. The trailer's status tells whether the regions were still registered after the last byte
// was read from them; with another id than the request's the stream is out of step, and the reader hangs up.
// A request of zero segments is a probe. Responses come in the order of requests; a reader may send ahead.
//
// # Limits
//
//	hello, welcome   ≤ 1 KiB            segments a request   ≤ 1024
//	request          ≤ 128 KiB          bytes a request      ≤ 16 MiB
//	text             ≤ 512 bytes        connections          ≤ 4096, ≤ 64 of one address
//
// Beyond a limit the server answers with status 2 (refused) where it can, and hangs up where the stream's meaning is
// lost. Each wait of both sides ends after a time without progress (Config.Stall), never after a fixed total.
//
// # Memory
//
// Runs of 64 KiB and more go from the mapping to the socket without passing through a buffer (sendfile where there is
// a file behind the memory and no TLS in between), and from the socket into the destination. Shorter runs are packed
// into a buffer of 256 KiB, one for each connection that is busy with them.
package tcp
