package owner

import (
	"context"
	"errors"
	"time"
)

const (
	// lookAgain is how soon a folder is looked at again whose owner holds the lock and does not
	// answer yet: it starts or ends.
	lookAgain = 10 * time.Millisecond
	// tryAgain is the pause after this process could not make a hub of the folder.
	tryAgain = 500 * time.Millisecond
)

// Keep sees to it that somebody owns the folder until ctx ends: this process, whenever nobody
// else does. run is called with the folder in hand and returns, with everything closed, when ctx
// ends or the folder is [Owner.Wanted]. Keep tells failed why run or the folder failed, and goes
// on trying.
func Keep(ctx context.Context, data string, run func(context.Context, *Owner) error, failed func(error)) {
	for ctx.Err() == nil {
		own, err := Take(data)
		var owned OwnedError
		pause := lookAgain
		switch {
		case err == nil:
			err := run(ctx, own)
			own.Release()
			if err != nil && ctx.Err() == nil {
				failed(err)
				pause = tryAgain
			}
		case errors.As(err, &owned):
			Watch(ctx, data)
		default:
			failed(err)
			pause = tryAgain
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// WaitFor is [Take] for a hub that is started on purpose: a stdio owner is asked to hand over,
// an operator's command that owns the folder for the moment is waited for, and another hub is
// not.
func WaitFor(ctx context.Context, data string) (*Owner, error) {
	for give := time.Now().Add(giveUp); ; {
		own, err := Take(data)
		var owned OwnedError
		if err == nil || !errors.As(err, &owned) || time.Now().After(give) {
			return own, err
		}
		// Whoever owns it now is asked: one that was asked may have died, and another taken over.
		if yes, gone := AskForFolder(ctx, data); gone == nil && !yes {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(lookAgain):
		}
	}
}

// giveUp is how long a hub waits for an owner that is starting, ending or handing over.
const giveUp = 8 * time.Second
