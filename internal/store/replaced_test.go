package store_test

import (
	"context"
	"os"
	"testing"
)

func TestTheLogOfADatabaseThatWasReplacedIsNotPlayedIntoTheOther(t *testing.T) {
	t.Parallel()
	mine := open(t, config(t, "sqlite"))
	mine.write(add("mine"))
	other := open(t, config(t, "sqlite"))
	other.write(add("other"))
	must(t, other.Close())
	must(t, os.Rename(other.cfg.Path, mine.cfg.Path))
	// What still comes goes into the log, which bears the other's name now.
	_ = mine.Write(context.Background(), add("late"))
	must(t, mine.Close())
	wantThere(t, open(t, mine.cfg).there(), "other")
}
