package arena

// A block is digested when its last byte has come and was verified. By then it has left the cache, if it came with megabytes
// of others. Whoever brings all that is missing of a block may have it digested before, the moment its bytes have landed; the
// digest is kept aside, and noted if Came says that the bytes were good. What was kept of an attempt that failed is forgotten
// when the next one begins.

// Block is one block of a file.
type Block struct {
	File   int   // number of the file
	Lo, Hi int64 // bytes from the file's start
	number int
}

// Foreseen forgets what was kept of the blocks that regions touch, and lists those that lack nothing but these regions. The
// regions come as number of the file and place in it, each byte once.
func (s *Slot) Foreseen(regions func(yield func(file int, r Region) bool)) []Block {
	brought := make([]map[int]int64, len(s.files)) // by file: bytes of each block
	regions(func(i int, r Region) bool {
		if brought[i] == nil {
			brought[i] = map[int]int64{}
		}
		return r.each(func(lo, hi int64) bool {
			s.files[i].eachBlock(lo, hi, func(k int, nbytes int64) { brought[i][k] += nbytes })
			return true
		})
	})
	var whole []Block
	for i := range brought {
		l := s.ledgers[i]
		for k, nbytes := range brought[i] {
			l.early[k].Store(0)
			if int64(l.left[k].Load()) == nbytes {
				b := Block{File: i, number: k}
				b.Lo, b.Hi = l.f.block(k)
				whole = append(whole, b)
			}
		}
	}
	return whole
}

// Foresee digests a block as it is now, and keeps the digest until Came.
func (s *Slot) Foresee(b Block) {
	l := s.ledgers[b.File]
	l.early[b.number].Store(l.sum(b.number, s.mems[b.File].Bytes()))
}
