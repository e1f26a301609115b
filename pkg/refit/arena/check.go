package arena

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/zeebo/xxh3"
)

// ErrNotNoted is returned by Check where nothing was noted of some of a file's bytes.
var ErrNotNoted = errors.New("not all of the file's bytes were noted")

// Check reads an arena file and compares it with the list beside it, which needs neither the receiver nor its
// configuration. It gives the bytes compared. Errors: ErrNotNoted;
// damage, by place.
func Check(path string) (nbytes int64, err error) {
	list, err := readList(strings.TrimSuffix(path, ".safetensors")+".blocks", maxList)
	if err != nil || len(list) < ledgerHead || !bytes.HasPrefix(list, []byte(ledgerMagic)) {
		return 0, fmt.Errorf("check %s: %w", path, ErrNotNoted)
	}
	seed, per := binary.LittleEndian.Uint64(list[8:]), int64(binary.LittleEndian.Uint64(list[40:]))
	n := binary.LittleEndian.Uint64(list[48:])
	if per < 1 || per > 1<<30 || n != uint64(len(list)-ledgerHead)/8 {
		return 0, fmt.Errorf("check %s: %w", path, ErrNotNoted)
	}
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("check arena: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	var head [lengthBytes]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		return 0, fmt.Errorf("check %s: read its header's length: %w", path, err)
	}
	at := int64(lengthBytes + binary.LittleEndian.Uint64(head[:])%(1<<40))
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, fmt.Errorf("check %s: %w", path, err)
	}
	block := make([]byte, per)
	for sums := list[ledgerHead:]; len(sums) >= 8; sums = sums[8:] {
		got, err := io.ReadFull(f, block)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nbytes, fmt.Errorf("check %s: read from byte %d: %w", path, at, err)
		}
		switch sum := binary.LittleEndian.Uint64(sums); {
		case sum == 0:
			err = ErrNotNoted
		case sum != max(1, xxh3.HashSeed(block[:got], seed)):
			return nbytes, fmt.Errorf("check %s: bytes %d to %d are not as they were when they came", path, at, at+int64(got))
		default:
			nbytes, err = nbytes+int64(got), nil
		}
		if err != nil {
			return nbytes, fmt.Errorf("check %s: bytes %d to %d: %w", path, at, at+int64(got), err)
		}
		at += int64(got)
	}
	if more, err := f.Read(head[:1]); more > 0 || !errors.Is(err, io.EOF) {
		return nbytes, fmt.Errorf("check %s: its list ends at byte %d, the file does not: %w", path, at, errors.Join(ErrNotNoted, notEOF(err)))
	}
	return nbytes, nil
}

// notEOF is an error other than a file's end.
func notEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// maxList bounds a list of blocks whose arena isn't known, in bytes: 8 for each block of 256 KiB: 8 TiB of arena.
const maxList = 256 << 20

// readList reads at most limit bytes of a list; of a longer one, one byte more, so that its length is wrong.
func readList(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	return io.ReadAll(io.LimitReader(f, limit+1))
}
