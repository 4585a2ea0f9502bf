package store_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func TestPoisonedBatchOnAFullFileSystemAnswersTruly(t *testing.T) {
	t.Parallel()
	for name, reading := range map[string]bool{"with readers": true, "writer alone": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := hubtest.SmallDisk(t, 64<<20)
			f := open(t, store.Config{Path: filepath.Join(dir, "handclasp.db")})
			f.write(add("earlier"))
			if reading {
				f.there()
			}
			empty := hubtest.FillDisk(t, dir)
			answers := f.together(
				call{fn: add("before")},
				call{fn: addLarge("large", spill)},
				call{fn: add("after")},
			)
			for i, err := range answers {
				wantUnavailable(t, fmt.Sprintf("function %d", i+1), err, nothing)
				if !strings.Contains(fmt.Sprint(err), "disk is full") {
					t.Errorf("%v does not say that the disk is full", err)
				}
			}
			for range 3 {
				err := f.Write(context.Background(), add("later"))
				wantUnavailable(t, "a write on a full disk", err, nothing)
			}
			if reading {
				wantThere(t, f.there(), "earlier")
			}
			empty()
			f.write(add("later"))
			wantThere(t, f.there(), "earlier", "later")
			wantThere(t, f.thereOnDisk(), "earlier", "later")
		})
	}
}

func TestOpeningOnAFullFileSystemSaysSo(t *testing.T) {
	t.Parallel()
	dir := hubtest.SmallDisk(t, 8<<20)
	hubtest.FillDisk(t, dir)
	_, err := store.Open(context.Background(), store.Config{Path: filepath.Join(dir, "handclasp.db")})
	if err == nil || !strings.Contains(err.Error(), "is full") {
		t.Errorf("got %v, want the sentence about the full disk", err)
	}
}
