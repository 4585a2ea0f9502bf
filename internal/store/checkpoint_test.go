package store_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"handclasp/internal/hubtest"
)

func TestACheckpointThatABackupHoldsUpKeepsNoWriterWaiting(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	f := open(t, config(t, "sqlite"))
	g, backup, checkpoint := hubtest.NewGate(), make(chan error, 1), make(chan error, 1)
	go func() { backup <- f.Backup(ctx, g) }()
	<-g.Reached
	f.write(add("behind the snapshot"))
	go func() { checkpoint <- f.Checkpoint(ctx) }()
	var longest time.Duration
	for n := 0; ; n++ {
		began := time.Now()
		f.write(add(fmt.Sprint("meanwhile ", n)))
		longest = max(longest, time.Since(began))
		select {
		case err := <-checkpoint:
			if err == nil {
				t.Error("the log was emptied under the backup")
			}
		default:
			continue
		}
		break
	}
	if longest > time.Second {
		t.Errorf("a write took %s", longest)
	}
	close(g.Opened)
	must(t, <-backup)
	if log, err := os.Stat(f.cfg.Path + "-wal"); err != nil || log.Size() > 0 {
		t.Errorf("the backup has ended and the log still holds what it held: %v, %v", log, err)
	}
}
