package store_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// onEachPair runs the test from each database to each.
func onEachPair(t *testing.T, test func(t *testing.T, f *fixture, to store.Config)) {
	t.Helper()
	onEach(t, func(t *testing.T, f *fixture) {
		for _, kind := range hubtest.Kinds() {
			t.Run("to "+kind, func(t *testing.T) {
				to := config(t, kind)
				test(t, f, to)
			})
		}
	})
}

func (f *fixture) backup() []byte {
	f.t.Helper()
	var b bytes.Buffer
	must(f.t, f.Backup(context.Background(), &b))
	return b.Bytes()
}

// dump is every row that the store sees.
func (f *fixture) dump() (rows []string) {
	f.t.Helper()
	f.read(func(tx *store.Tx) error {
		rows = hubtest.Dump(f.t, f.Kind(), tx.Texts)
		return nil
	})
	return rows
}

func restore(t *testing.T, to store.Config, backup []byte) store.BackupInfo {
	t.Helper()
	info, err := store.Restore(context.Background(), to, bytes.NewReader(backup), nil)
	must(t, err)
	return info
}

func TestABackupCarriesEveryTableOfTheSchemaBehindThoseItRefersTo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		tables := `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version' ORDER BY name`
		refers := `SELECT t.name || ' ' || k."table" FROM sqlite_schema t, pragma_foreign_key_list(t.name) k WHERE t.type = 'table'`
		if f.Kind() == "postgres" {
			tables = `SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public' AND table_name <> 'goose_db_version' ORDER BY table_name`
			refers = `SELECT conrelid::regclass || ' ' || confrelid::regclass FROM pg_constraint WHERE contype = 'f'`
		}
		f.read(func(tx *store.Tx) error {
			there, err := tx.Texts(tables)
			must(t, err)
			slices.Sort(there)
			if want := slices.Sorted(slices.Values(store.Tables())); !slices.Equal(there, want) {
				t.Errorf("the schema has the tables\n%v, the list of catalog.go\n%v", there, want)
			}
			pairs, err := tx.Texts(refers)
			must(t, err)
			for _, pair := range pairs {
				from, to, _ := strings.Cut(pair, " ")
				if slices.Index(store.Tables(), from) <= slices.Index(store.Tables(), to) {
					t.Errorf("%s refers to %s and must stand behind it", from, to)
				}
			}
			if len(pairs) == 0 || len(there) == 0 {
				t.Error("no tables or references were found")
			}
			return nil
		})
	})
}

// A sort would hold a whole table in memory.
func TestABackupOfSQLiteReadsEveryTableAlongItsPrimaryKey(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	f.read(func(tx *store.Tx) error {
		queries, err := tx.Selects()
		if len(queries) != len(store.Tables()) {
			t.Errorf("%d queries for %d tables", len(queries), len(store.Tables()))
		}
		for table, query := range queries {
			plan, err := tx.Plan(query)
			if text := strings.Join(plan, "; "); err != nil || text == "" || strings.Contains(text, "TEMP B-TREE") {
				t.Errorf("%s: %s (%v)", table, text, err)
			}
		}
		return err
	})
}

func TestEveryRowOfEveryTableComesBackInEitherDatabase(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, f *fixture, to store.Config) {
		if n := len(f.dump()); n < 10 {
			fillEveryTable(t, f.cfg, len(odd))
		}
		want := f.dump()
		if len(want) != len(store.Tables())*len(odd)+1 { // and the cursor epoch
			t.Fatalf("%d rows were filled in", len(want))
		}
		backup := f.backup()
		info := restore(t, to, backup)
		if int(info.Total()) != len(want) || info.Database != f.Kind() || info.Schema != store.SchemaVersion {
			t.Errorf("the restore says %+v", info)
		}
		hubtest.WantSameRows(t, "restored", hubtest.DumpOf(t, to), want)
		g := open(t, to)
		hubtest.WantSameRows(t, "opened", g.dump(), want)
		g.read(func(tx *store.Tx) error {
			if xacts, err := tx.Texts(`SELECT DISTINCT 'x' || xact FROM events`); err != nil || !slices.Equal(xacts, []string{"x0"}) {
				t.Errorf("the events have the transaction ids %v (%v), which mean nothing here", xacts, err)
			}
			return nil
		})
		fresh := open(t, config(t, g.Kind()))
		wantSame(t, "the schema", withoutSettings(g.schema()), withoutSettings(fresh.schema()))
		// The second generation is the first, but for the moment and the epoch.
		if again := lines(t, g.backup()); !slices.Equal(again[3:len(again)-1], lines(t, backup)[3:len(again)-1]) {
			t.Error("a backup of what was restored holds other lines")
		}
	})
}

func withoutSettings(schema []string) []string {
	return slices.DeleteFunc(schema, func(line string) bool {
		name, _, ok := strings.Cut(line, "=")
		return ok && !strings.Contains(name, " ")
	})
}

// lines unpacks a backup.
func lines(t *testing.T, backup []byte) []string {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(backup))
	must(t, err)
	text, err := io.ReadAll(gz)
	must(t, err)
	list := strings.SplitAfter(string(text), "\n")
	return list[:len(list)-1] // nothing stands behind the last line
}

// The comparison that the other tests rest on must itself notice one altered column of one row, and
// one row too few.
func TestTheComparisonNoticesEveryColumnOfEveryTable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		fillEveryTable(t, f.cfg, 4)
		to := config(t, f.Kind())
		restore(t, to, f.backup())
		want := f.dump()
		db := hubtest.Beside(t, to)
		if f.Kind() == "sqlite" {
			run(t, db, `PRAGMA foreign_keys = off`)
			db.SetMaxOpenConns(1)
		}
		altered := 0
		for _, table := range store.Tables() {
			columns := columnsOf(t, db, to, table)
			key := columns[slices.IndexFunc(columns, func(c columnOf) bool { return c.key })]
			where := ` WHERE ` + key.name + ` = 'key-3'`
			if key.number {
				where = ` WHERE ` + key.name + ` = 4`
			}
			for _, c := range columns {
				if c.name == "xact" {
					continue
				}
				value := c.name + ` || '!'`
				if c.number {
					value = `CASE WHEN ` + c.name + ` = 77 THEN 78 ELSE 77 END`
				}
				if got := withChange(t, db, f.Kind(), `UPDATE `+table+` SET `+c.name+` = `+value+where); slices.Equal(got, want) {
					t.Errorf("another %s.%s was not noticed", table, c.name)
				}
				altered++
			}
			if got := withChange(t, db, f.Kind(), `DELETE FROM `+table+where); slices.Equal(got, want) {
				t.Errorf("a missing row of %s was not noticed", table)
			}
		}
		if altered < 130 {
			t.Errorf("only %d columns were altered", altered)
		}
	})
}

// withChange changes one row, dumps the database, and takes the change back.
func withChange(t *testing.T, db *sql.DB, kind, change string) []string {
	t.Helper()
	tx, err := db.Begin()
	must(t, err)
	defer tx.Rollback()
	if kind == "postgres" {
		_, err := tx.Exec(`SET LOCAL session_replication_role = replica`) // references may dangle
		must(t, err)
	}
	result, err := tx.Exec(change)
	if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		t.Fatalf("%s changed %d rows (%v)", change, n, err)
	}
	return hubtest.Dump(t, kind, hubtest.Texts(tx))
}

// withoutFirst leaves out the first row of each writer.
func withoutFirst(rows []string) (list []string) {
	seen := map[string]bool{}
	for _, row := range rows {
		writer, _, _ := strings.Cut(row, ", row ")
		if seen[writer] {
			list = append(list, row)
		}
		seen[writer] = true
	}
	return list
}

func TestABackupUnderLoadIsOneMoment(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, f *fixture, to store.Config) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		var mu sync.Mutex
		var acked []string
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					name := fmt.Sprintf("to %v, writer %d, row %d", to.URL != "", w, i)
					if err := f.Write(context.Background(), addLarge(name, 100)); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					acked = append(acked, name)
					mu.Unlock()
				}
			})
		}
		so := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(acked)
		}
		eventually(t, "the writers are at it", func() bool { return len(so()) > 50 })
		before := so()
		g, done, snapshot := hubtest.NewGate(), make(chan error, 1), []string(nil)
		go func() {
			done <- f.BackupAnd(ctx, g, func(tx *store.Tx) error {
				snapshot = hubtest.Dump(t, f.Kind(), tx.Texts)
				return nil
			})
		}()
		<-g.Reached
		held := so()
		eventually(t, "writers go on while the snapshot is held", func() bool { return len(so()) > len(held)+50 })
		late := withoutFirst(so()[len(held):]) // of each writer: that call may have begun before
		// Nor are readers of the log held back.
		eventually(t, "events of after the snapshot are read", func() bool {
			r := f.follower("reader", 1000)
			r.mustLook(t)
			return slices.Contains(r.seen, late[0])
		})
		close(g.Opened)
		must(t, <-done)
		stop()
		wg.Wait()
		restore(t, to, g.Bytes())
		hubtest.WantSameRows(t, "restored", hubtest.DumpOf(t, to), snapshot)
		there := map[string]bool{}
		for _, name := range open(t, to).there() {
			there[name] = true
		}
		for _, name := range before {
			if !there[name] {
				t.Errorf("%s was acknowledged before the backup began and is not in it", name)
			}
		}
		for _, name := range late {
			if there[name] {
				t.Errorf("%s was written after the snapshot and is in it", name)
			}
		}
	})
}

// The limits that an operator sets on a server are meant for calls.
func TestNoLimitOfTheServerCutsABackupOfPostgreSQL(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	run(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 15000', current_database()); END $$`)
	again := open(t, f.cfg)
	must(t, again.BackupAnd(context.Background(), io.Discard, func(tx *store.Tx) error {
		for _, name := range []string{"statement_timeout", "idle_in_transaction_session_timeout"} {
			if value, err := tx.Texts(`SELECT current_setting('` + name + `')`); err != nil || value[0] != "0" {
				t.Errorf("%s is %v (%v)", name, value, err)
			}
		}
		// A transaction without an id of its own holds nobody back.
		ids, err := tx.Texts(`SELECT COALESCE(pg_current_xact_id_if_assigned()::text, 'none')`)
		if err != nil || ids[0] != "none" {
			t.Errorf("the backup's transaction has the id %v (%v)", ids, err)
		}
		return nil
	}))
	again.read(func(tx *store.Tx) error {
		value, err := tx.Texts(`SELECT current_setting('statement_timeout')`)
		if err == nil && value[0] != "15s" {
			t.Errorf("afterwards statement_timeout is %v", value)
		}
		return err
	})
}

func TestAReaderOfTheLogIsToldThatItsCursorExpiredAndReadsAllAnew(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, f *fixture, to store.Config) {
		var want []string
		before := f.follower("fresh", 100)
		before.mustLook(t)
		want = append(want, before.seen...)
		for i := range 7 {
			want = append(want, fmt.Sprint("event ", i, " ", to.URL != ""))
			f.write(happened(want[len(want)-1]))
		}
		reader := f.follower("reader", 2)
		eventually(t, "the reader saw all", func() bool { reader.mustLook(t); return len(reader.seen) == len(want) })
		restore(t, to, f.backup())
		g := open(t, to)
		reader.f = g
		if err := reader.look(); handoff.CodeOf(err) != handoff.CodeCursorExpired {
			t.Errorf("the old cursor is answered %v", err)
		}
		anew := g.follower("anew", 2)
		anew.mustLook(t)
		if !slices.Equal(anew.seen, want) {
			t.Errorf("read anew: %v, want %v", anew.seen, want)
		}
		// What comes now stands behind, and readers go on with their new cursors.
		for i := range 5 {
			want = append(want, fmt.Sprint("later ", i))
			g.write(happened(want[len(want)-1]))
		}
		eventually(t, "the reader saw the later ones", func() bool { anew.mustLook(t); return len(anew.seen) == len(want) })
		if !slices.Equal(anew.seen, want) {
			t.Errorf("read on: %v, want %v", anew.seen, want)
		}
	})
}

func TestClosingTheStoreBreaksABackupOffAndTheOutcomeIsNoticed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for i := range 200 {
			f.write(addLarge(fmt.Sprint("agent", i), 1000))
		}
		g, done := hubtest.NewGate(), make(chan error, 1)
		go func() { done <- f.Backup(context.Background(), g) }()
		<-g.Reached
		closing := make(chan error, 1)
		go func() { closing <- f.Close() }()
		eventually(t, "the store is closing", func() bool {
			return handoff.CodeOf(f.Read(context.Background(), func(*store.Tx) error { return nil })) == handoff.CodeUnavailable
		})
		select {
		case err := <-closing:
			t.Fatalf("the store closed under a backup: %v", err)
		default:
		}
		close(g.Opened)
		if err := <-done; handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("the backup ended with %v", err)
		}
		must(t, <-closing)
		if _, err := store.CheckBackup(bytes.NewReader(g.Bytes()), nil); !errors.As(err, new(store.BadBackupError)) {
			t.Errorf("what came of it is taken for whole: %v", err)
		}
	})
}

func TestABackupEndsWithItsReaderAndGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("one"))
		gone := errors.New("the reader is gone")
		if err := f.Backup(context.Background(), failing{gone}); !errors.Is(err, gone) {
			t.Errorf("got %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := f.Backup(ctx, io.Discard); handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("got %v", err)
		}
		if strings.Contains(f.log.String(), "database fault") {
			t.Errorf("it is logged as a fault of the database: %s", f.log)
		}
		f.backup()
	})
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
