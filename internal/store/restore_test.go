package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func TestABackupThatIsNotWholeIsRefusedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for i := range 40 {
			f.write(addLarge(fmt.Sprint("agent", i), 1000))
		}
		whole, to := f.backup(), config(t, f.Kind())
		text := lines(t, whole)
		body := func(change func(lines []string) []string) []byte {
			return pack(t, change(slices.Clone(text)))
		}
		flip := func(at int) []byte {
			b := bytes.Clone(whole)
			b[at] ^= 0x10
			return b
		}
		for name, c := range map[string]struct {
			backup []byte
			says   string
		}{
			"nothing":                  {nil, "not a backup"},
			"a text":                   {[]byte("my notes, and nothing else"), "not a backup"},
			"another packed file":      {pack(t, []string{"my notes\n"}), "not a backup"},
			"half of it":               {whole[:len(whole)/2], "cut short"},
			"all but a byte":           {whole[:len(whole)-1], "cut short"},
			"the header only":          {whole[:12], "cut short"},
			"a flipped bit":            {flip(len(whole) / 2), "damaged"},
			"a flipped bit at the end": {flip(len(whole) - 6), "damaged"},
			"something behind it":      {append(bytes.Clone(whole), "something of another file"...), "damaged"},
			"no trailer":               {body(func(l []string) []string { return l[:len(l)-1] }), "cut short"},
			"a row less": {body(func(l []string) []string {
				i := slices.IndexFunc(l, func(s string) bool { return strings.HasPrefix(s, `{"t":"agents"`) })
				return slices.Delete(l, i, i+1)
			}), "damaged"},
			"an altered row": {body(func(l []string) []string {
				i := slices.IndexFunc(l, func(s string) bool { return strings.HasPrefix(s, `{"t":"agents"`) })
				l[i] = strings.Replace(l[i], "xxx", "xyx", 1)
				return l
			}), "damaged"},
			"a line of a million numbers": {body(func(l []string) []string {
				i := slices.IndexFunc(l, func(s string) bool { return strings.HasPrefix(s, `{"t":"agents"`) })
				l[i] = `{"t":"agents","r":[` + strings.Repeat(`",\"",1,`, 1_000_000) + "1]}\n"
				return l
			}), "more values than any table"},
			"an endless header": {body(func(l []string) []string {
				l[0] = `{"handclasp_backup":1,"program":"` + strings.Repeat("x", 1_000_000) + "\"}\n"
				return l
			}), "longer than any"},
			"a later schema": {body(func(l []string) []string {
				l[0] = strings.Replace(l[0], `"schema":`, `"schema":9`, 1)
				return l
			}), "restore it with that version or a later one"},
			"a later format": {body(func(l []string) []string {
				l[0] = strings.Replace(l[0], `"handclasp_backup":1`, `"handclasp_backup":2`, 1)
				return l
			}), "restore it with that version or a later one"},
		} {
			t.Run(name, func(t *testing.T) {
				_, check := store.CheckBackup(bytes.NewReader(c.backup), nil)
				_, err := store.Restore(context.Background(), to, bytes.NewReader(c.backup), nil)
				for by, err := range map[string]error{"the check": check, "the restore": err} {
					var bad store.BadBackupError
					if !errors.As(err, &bad) || !strings.Contains(err.Error(), c.says) {
						t.Errorf("%s: %v does not say %q", by, err, c.says)
					}
				}
				wantNothing(t, to)
			})
		}
	})
}

func pack(t *testing.T, lines []string) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	_, err := io.WriteString(gz, strings.Join(lines, ""))
	must(t, errors.Join(err, gz.Close()))
	return b.Bytes()
}

// wantNothing wants that a restore left neither file nor table.
func wantNothing(t *testing.T, cfg store.Config) {
	t.Helper()
	if cfg.URL == "" {
		left, err := os.ReadDir(filepath.Dir(cfg.Path))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v (%v)", left, err)
		}
		return
	}
	var tables int
	must(t, hubtest.Beside(t, cfg).QueryRow(`SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`).Scan(&tables))
	if tables > 0 {
		t.Errorf("%d tables and indexes were left behind", tables)
	}
}

func TestARestoreIntoAHubIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("mine"))
		backup, before := f.backup(), f.dump()
		_, err := store.Restore(context.Background(), f.cfg, bytes.NewReader(backup), nil)
		var occupied store.OccupiedError
		if !errors.As(err, &occupied) || !strings.Contains(err.Error(), "Nothing was changed") {
			t.Errorf("got %v", err)
		}
		hubtest.WantSameRows(t, "the hub", f.dump(), before)
		must(t, f.Close())
		if f.Kind() == "sqlite" {
			left, err := os.ReadDir(filepath.Dir(f.cfg.Path))
			if err != nil || len(left) != 1 {
				t.Errorf("beside the database: %v (%v)", left, err)
			}
			// A log without its database would be played into the restored one.
			from := f.cfg.Path
			for _, suffix := range []string{"-wal", "-journal"} {
				must(t, os.Rename(from, f.cfg.Path+suffix))
				from = f.cfg.Path + suffix
				if _, err := store.Restore(context.Background(), f.cfg, bytes.NewReader(backup), nil); !errors.As(err, &occupied) {
					t.Errorf("with a %s: %v", suffix, err)
				}
			}
		}
	})
}

func TestAKilledRestoreIsNoObstacle(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	f.write(add("one"))
	to := config(t, "sqlite")
	must(t, os.WriteFile(to.Path+".restoring", []byte("half a database"), 0o600))
	restore(t, to, f.backup())
	info, err := os.Stat(to.Path)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("it has mode %o", info.Mode().Perm())
	}
	if left, err := os.ReadDir(filepath.Dir(to.Path)); err != nil || len(left) != 1 {
		t.Errorf("left are %v (%v)", left, err)
	}
	wantThere(t, open(t, to).there(), "one")
}

func TestOfTwoRestoresIntoOneDatabaseOneIsRefused(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	f.write(add("one"))
	backup, to := f.backup(), config(t, "postgres")
	var second error
	_, err := store.Restore(context.Background(), to, bytes.NewReader(backup), func(rows int64) {
		if rows == 1 {
			_, second = store.Restore(context.Background(), to, bytes.NewReader(backup), nil)
		}
	})
	must(t, err)
	if !errors.As(second, new(store.OccupiedError)) {
		t.Errorf("the second ended with %v", second)
	}
	wantThere(t, open(t, to).there(), "one")
}

func TestACancelledRestoreLeavesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for i := range 300 {
			f.write(add(string(rune('a'+i%26)) + strings.Repeat("x", i)))
		}
		to := config(t, f.Kind())
		ctx, cancel := context.WithCancel(context.Background())
		_, err := store.Restore(ctx, to, bytes.NewReader(f.backup()), func(rows int64) {
			if rows == 150 {
				cancel()
			}
		})
		if err == nil || !strings.Contains(err.Error(), "cancelled") {
			t.Errorf("got %v", err)
		}
		wantNothing(t, to)
		// A fault of the file in mid-way is told as what it is.
		broken := errors.New("the disk hiccupped")
		b := f.backup()
		if _, err := store.Restore(context.Background(), to, &breaking{bytes.NewReader(b[:len(b)/2]), broken}, nil); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		wantNothing(t, to)
	})
}

// breaking is a reader that fails instead of ending.
type breaking struct {
	r   *bytes.Reader
	err error
}

func (b *breaking) Read(p []byte) (int, error) {
	if b.r.Len() == 0 {
		return 0, b.err
	}
	return b.r.Read(p)
}
