package safetensors

// File is an open file, mapped read-only. Views into it die with Close.
type File struct {
	Header
	path   string
	mapped []byte
}

// Open maps the file at path and checks its header.
func Open(path string) (*File, error) { panic("not yet") }

// Path is the name that the file was opened by.
func (f *File) Path() string { return f.path }

// Find returns the tensor of that name.
func (f *File) Find(name string) (Tensor, bool) { panic("not yet") }

// Bytes is a read-only view of the tensor's bytes; writing to it faults. Valid until Close.
func (f *File) Bytes(t Tensor) []byte { panic("not yet") }

// ReadAt copies bytes of the whole file, header included (io.ReaderAt).
func (f *File) ReadAt(p []byte, off int64) (int, error) { panic("not yet") }

// Close unmaps the file. It may be repeated.
func (f *File) Close() error { panic("not yet") }
