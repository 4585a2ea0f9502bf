package store_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// wantRefusedOpen opens the database and wants an error that says each of the words.
func wantRefusedOpen(t *testing.T, cfg store.Config, words ...string) error {
	t.Helper()
	st, err := store.Open(context.Background(), cfg)
	if err == nil {
		_ = st.Close()
		t.Fatal("it was opened")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return err
}

// files is every file of a folder with its content.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	all := map[string]string{}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		must(t, err)
		all[e.Name()] = string(b)
	}
	return all
}

func wantUntouched(t *testing.T, dir string, before map[string]string) {
	t.Helper()
	after := files(t, dir)
	for name, content := range before {
		if after[name] != content {
			t.Errorf("%s was changed", name)
		}
	}
	for name := range after {
		if _, was := before[name]; !was {
			t.Errorf("%s was left behind", name)
		}
	}
}

// filled is a database with something in it, closed.
func filled(t *testing.T) string {
	t.Helper()
	f := open(t, config(t, "sqlite"))
	for i := range 50 {
		f.write(addLarge(fmt.Sprint("agent", i), 1000))
	}
	must(t, f.Close())
	return f.cfg.Path
}

func TestDatabaseFileBelongsToItsOwnerAlone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "data folder")
	f := open(t, store.Config{Path: filepath.Join(dir, "handclasp.db")})
	f.write(add("one"))
	f.there()
	folder, err := os.Stat(dir)
	must(t, err)
	if folder.Mode().Perm() != 0o700 {
		t.Errorf("the folder has mode %o", folder.Mode().Perm())
	}
	for _, suffix := range []string{"", "-wal"} {
		file, err := os.Stat(f.cfg.Path + suffix)
		must(t, err)
		if file.Mode().Perm() != 0o600 {
			t.Errorf("the file handclasp.db%s has mode %o", suffix, file.Mode().Perm())
		}
	}
}

func TestPathIsTakenLiterally(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"plain", "with space", "a?b=c", "a#b", "100%41", "ünï🤝", "a&vfs=none", "it's"} {
		path := filepath.Join(t.TempDir(), name, "handclasp.db")
		f := open(t, store.Config{Path: path})
		f.write(add("one"))
		must(t, f.Close())
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q: the database is not where it should be: %v", name, err)
		}
	}
}

func TestOpeningTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("one"))
		f.write(happened("something"))
		settle(t, f, []string{"something"}, nil)
		reader := f.follower("reader", 10)
		reader.mustLook(t)
		before := f.schema()
		must(t, f.Close())
		again := open(t, f.cfg)
		wantThere(t, again.there(), "one")
		wantSame(t, "the schema", again.schema(), before)
		reader.f = again // its cursor is still good
		again.write(happened("something else"))
		settle(t, again, []string{"something", "something else"}, []*follower{reader})
	})
}

// schema describes the tables and what migrations were applied.
func (f *fixture) schema() (list []string) {
	f.t.Helper()
	queries := []string{`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name`}
	if f.Kind() == "postgres" {
		queries = []string{
			`SELECT table_name || '.' || column_name || ' ' || data_type FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1`,
			`SELECT indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1`,
		}
	}
	f.read(func(tx *store.Tx) error {
		for _, q := range append(queries, `SELECT 'migration ' || version_id FROM goose_db_version ORDER BY id`, `SELECT name || '=' || value FROM settings ORDER BY name`) {
			part, err := tx.Texts(q)
			if err != nil {
				return err
			}
			list = append(list, part...)
		}
		return nil
	})
	return list
}

func TestNodesMigrateAFreshDatabaseTogether(t *testing.T) {
	t.Parallel()
	cfg := config(t, "postgres")
	nodes := make([]*store.Store, 3)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() {
			st, err := store.Open(context.Background(), cfg)
			if err != nil {
				t.Errorf("node %d: %v", i, err)
				return
			}
			nodes[i] = st
		})
	}
	wg.Wait()
	for _, st := range nodes {
		if st != nil {
			defer st.Close()
		}
	}
	f := open(t, cfg)
	schema := f.schema()
	migrations := slices.DeleteFunc(slices.Clone(schema), func(s string) bool { return !strings.HasPrefix(s, "migration ") })
	if len(migrations) != store.SchemaVersion+1 { // goose counts its own beginning
		t.Errorf("applied were %v", migrations)
	}
	// All give out the same cursors.
	f.write(happened("something"))
	settle(t, f, []string{"something"}, nil)
	r := f.follower("reader", 10)
	r.mustLook(t)
	for i, st := range nodes {
		if st == nil {
			continue
		}
		if err := st.Read(context.Background(), func(tx *store.Tx) error { _, _, err := tx.Events(r.cursor, 1); return err }); err != nil {
			t.Errorf("node %d does not know the cursor of another: %v", i, err)
		}
	}
}

func TestNewerSchemaIsRefusedAndNotTouched(t *testing.T) {
	t.Parallel()
	const newer = `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, %s)`
	words := []string{"99", "newer Handclasp", "Nothing was changed"}
	wantNewer := func(t *testing.T, err error) {
		t.Helper()
		var e store.NewerSchemaError
		if !errors.As(err, &e) || e.Found != 99 {
			t.Errorf("got %T, want a NewerSchemaError of 99", err)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filled(t)
		db, err := sql.Open("sqlite3", "file:"+path)
		must(t, err)
		run(t, db, fmt.Sprintf(newer, "1"))
		must(t, db.Close())
		before := files(t, filepath.Dir(path))
		wantNewer(t, wantRefusedOpen(t, store.Config{Path: path}, words...))
		wantUntouched(t, filepath.Dir(path), before)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f, db := onPostgres(t)
		run(t, db, fmt.Sprintf(newer, "true"))
		before := f.schema()
		wantNewer(t, wantRefusedOpen(t, store.Config{URL: f.cfg.URL}, words...))
		wantSame(t, "the schema", f.schema(), before)
	})
}

func TestDamagedOrForeignFileIsRefusedAndNotTouched(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"text":                  func([]byte) []byte { return bytes.Repeat([]byte("These are notes of somebody.\n"), 200) },
		"a short text":          func([]byte) []byte { return []byte("my notes") },
		"random bytes":          func(b []byte) []byte { return bytes.Repeat([]byte{0x8f, 0x11, 0xe3, 0x5a, 0x7c}, len(b)/5) },
		"a cut database":        func(b []byte) []byte { return b[:len(b)/3] },
		"a database cut short":  func(b []byte) []byte { return b[:3000] },
		"an overwritten schema": func(b []byte) []byte { copy(b[100:], bytes.Repeat([]byte{0xff}, 3000)); return b },
		"an overwritten header": func(b []byte) []byte { copy(b, bytes.Repeat([]byte{0}, 100)); return b },
		"zeroes":                func(b []byte) []byte { return make([]byte, len(b)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filled(t)
			content, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, damage(content), 0o600))
			before := files(t, filepath.Dir(path))
			wantRefusedOpen(t, store.Config{Path: path}, path, "damaged", "Nothing was changed", "Restore a backup")
			wantUntouched(t, filepath.Dir(path), before)
		})
	}
}

func TestFolderThatCannotBeWrittenIsNamed(t *testing.T) {
	t.Parallel()
	t.Run("a file in its place", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "data")
		must(t, os.WriteFile(file, []byte("not a folder"), 0o600))
		wantRefusedOpen(t, store.Config{Path: filepath.Join(file, "handclasp.db")}, file, "cannot be made", "--data")
	})
	t.Run("a folder in the place of the database", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "handclasp.db")
		must(t, os.Mkdir(path, 0o700))
		wantRefusedOpen(t, store.Config{Path: path}, path, "cannot be opened for writing", "--data")
	})
	t.Run("no right to write", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() == 0 {
			hubtest.Require(t, "non-root", errors.New("root may write everywhere"))
		}
		dir := t.TempDir()
		must(t, os.Chmod(dir, 0o500))
		t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
		wantRefusedOpen(t, store.Config{Path: filepath.Join(dir, "handclasp.db")}, dir, "cannot be opened for writing", "--data")
	})
	t.Run("a database without the right to write", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() == 0 {
			hubtest.Require(t, "non-root", errors.New("root may write everywhere"))
		}
		path := filled(t)
		must(t, os.Chmod(path, 0o400))
		wantRefusedOpen(t, store.Config{Path: path}, path, "cannot be opened for writing")
	})
}

func TestServerThatDoesNotAnswerIsNamedWithoutThePassword(t *testing.T) {
	t.Parallel()
	for address, words := range map[string][]string{
		"postgres://me:hunter2@127.0.0.1:1/db?sslmode=disable":       {"127.0.0.1:1", "does not answer", "--database-url"},
		"postgres://me:hunter2@127.0.0.1:notaport/db":                {"cannot be read", "postgres://"},
		"postgres://me:hunter2@/db?host=/tmp/none&sslmode=disable":   {"/tmp/none", "does not answer"},
		"postgres://me:hunter2@127.0.0.1:1/db?sslmode=whatever&a=%z": {"cannot be read"},
	} {
		err := wantRefusedOpen(t, store.Config{URL: address}, words...)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q tells the password", err)
		}
	}
	u, err := url.Parse(hubtest.PostgresURL(t))
	must(t, err)
	u.Path = "/no_such_database"
	wantRefusedOpen(t, store.Config{URL: u.String()}, "no_such_database")
}

func TestExactlyOneDatabaseIsNamed(t *testing.T) {
	t.Parallel()
	wantRefusedOpen(t, store.Config{}, "either a SQLite file or a PostgreSQL URL")
	wantRefusedOpen(t, store.Config{Path: "x", URL: "postgres://y"}, "either a SQLite file or a PostgreSQL URL")
}

func TestDamageFoundLaterIsUnavailableAndShowsNoPath(t *testing.T) {
	t.Parallel()
	path := filled(t)
	content, err := os.ReadFile(path)
	must(t, err)
	for at := 3 * len(content) / 4; at < len(content); at++ {
		content[at] = 0xff
	}
	must(t, os.WriteFile(path, content, 0o600))
	f := open(t, store.Config{Path: path})
	err = f.Read(context.Background(), func(tx *store.Tx) error { _, err := tx.Agents(); return err })
	if handoff.CodeOf(err) != handoff.CodeUnavailable {
		t.Fatalf("got %v, want unavailable", err)
	}
	var e *handoff.Error
	if errors.As(err, &e); strings.Contains(e.Message+e.Hint, path) || strings.Contains(e.Message, "malformed") {
		t.Errorf("%q shows what is the operator's alone", e.Message)
	}
	if !strings.Contains(f.log.String(), "corrupt") {
		t.Errorf("the log does not say what it is: %s", f.log)
	}
}
