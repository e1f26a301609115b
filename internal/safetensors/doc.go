// Package safetensors reads and lays out files of the safetensors format, strictly.
//
// A file is eight bytes of little-endian header length, a JSON object of that many bytes, and then the
// bytes of all tensors. The object maps each tensor's name to its dtype, its shape and its
// half-open byte range relative to the end of the header; the name "__metadata__" maps to strings.
//
// The law of the format, checked in full by [Parse]: sorted by range the tensors tile the bytes after the header
// exactly, without hole or overlap, from 0 to the end of the file, and each range is as long as
// dtype and shape say. A file that breaks the law is refused with an [Error] naming file and tensor.
//
// [Open] maps a file read-only and hands out views, so nothing is copied; the
// mapping is shared, so a writer that changes the file is seen, and one that truncates it kills the reader:
// files are replaced by rename, never rewritten. [NewLayout] computes where bytes belong in a file that
// somebody else maps and fills; the package never writes one itself.
package safetensors
