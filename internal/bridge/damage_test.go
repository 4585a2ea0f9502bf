package bridge_test

import (
	"math/rand/v2"
	"sync"
)

// damage changes text at random, the same way for the same seed.
type damage struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDamage(seed uint64) *damage { return &damage{r: rand.New(rand.NewPCG(seed, 7))} }

func (d *damage) pick(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

// bytes leaves one text in four as it is.
func (d *damage) bytes(text string) string {
	b := []byte(text)
	const odd = "{}[]\":,\\0-eE \x00\xff\xc3\r\n\tnull"
	for range d.pick(4) {
		at := d.pick(len(b) + 1)
		switch d.pick(5) {
		case 0: // cut
			b = b[:at]
		case 1: // drop some
			b = append(b[:at:at], b[min(len(b), at+d.pick(9)):]...)
		case 2: // put something in
			b = append(b[:at:at], append([]byte{odd[d.pick(len(odd))]}, b[at:]...)...)
		case 3: // twice
			b = append(b, b[at:]...)
		case 4: // any bit
			if at < len(b) {
				b[at] ^= 1 << d.pick(8)
			}
		}
	}
	return string(b)
}
