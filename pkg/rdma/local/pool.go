package local

import "sync"

// pool is the goroutines that copy for all peers of a transport. Jobs are taken in the order of posting, so a large
// read delays later ones by its own time and no more.
type pool struct {
	mu     sync.Mutex
	wake   *sync.Cond
	queue  []func()
	closed bool
	wg     sync.WaitGroup
}

func newPool(workers int) *pool {
	p := &pool{}
	p.wake = sync.NewCond(&p.mu)
	for range workers {
		p.wg.Go(p.run)
	}
	return p
}

func (p *pool) run() {
	for {
		job := p.next()
		if job == nil {
			return
		}
		job()
	}
}

func (p *pool) next() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.queue) == 0 && !p.closed {
		p.wake.Wait()
	}
	if len(p.queue) == 0 {
		return nil
	}
	job := p.queue[0]
	p.queue = p.queue[1:]
	return job
}

func (p *pool) post(jobs []func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, jobs...)
	p.wake.Broadcast()
}

// close ends the workers once the queue is empty.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	p.wake.Broadcast()
	p.mu.Unlock()
	p.wg.Wait()
}
