package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/owner"
	"handclasp/internal/restapi"
	"handclasp/internal/store"
)

// saved is what backup and restore print with --json.
type saved struct {
	File      string           `json:"file"`
	Bytes     int64            `json:"bytes"`
	CreatedAt string           `json:"created_at"`
	Program   string           `json:"program"`
	Schema    int64            `json:"schema"`
	Database  string           `json:"database"`
	Rows      int64            `json:"rows"`
	Tables    map[string]int64 `json:"tables"`
}

func newSaved(file string, bytes int64, info *store.BackupInfo) saved {
	return saved{
		File: file, Bytes: bytes, CreatedAt: info.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z"), Program: info.Program,
		Schema: info.Schema, Database: info.Database, Rows: info.Total(), Tables: info.Rows,
	}
}

type backupCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	File         string `arg:"" help:"File to write, readable by you alone; - is the standard output."`
	Force        bool   `help:"Replace FILE if it exists."`
}

// Help is printed by --help.
func (c *backupCmd) Help() string {
	return `The file holds everything that the hub held at one moment: agents, the hashes of their keys, threads, events, the secret that signs sessions. Keep it as safe as the hub. Calls are served meanwhile. FILE appears when it is whole.

Examples:
  handclasp backup /var/backups/handclasp.backup --force
  handclasp backup - | ssh vault 'cat > handclasp.backup'
  handclasp backup hub.backup --database-url postgres://handclasp@db.example.com/handclasp

A backup of SQLite restores into PostgreSQL and the other way round; see handclasp restore --help.`
}

func (c *backupCmd) Run(e *env) error {
	if err := c.toStdout(e, c.File, "backup FILE"); err != nil {
		return err
	}
	return operateAtLength(e, &c.Where, func(o *operatorClient) error {
		if c.File == "-" {
			_, err := o.backup(e, e.stdout, false)
			return err
		}
		var info store.BackupInfo
		size, err := intoFile(c.File, c.Force, func(w io.Writer) (err error) {
			info, err = o.backup(e, w, c.JSON)
			return err
		})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, newSaved(c.File, size, &info))
		}
		_, err = fmt.Fprintf(e.stdout, "%s holds %d rows of schema %d, %s. Read it back with: handclasp restore %s\n", c.File, info.Total(), info.Schema, sized(size), shellWords(c.File))
		return err
	})
}

// toStdout checks what goes to the standard output: a file there leaves no place for --json, and a
// terminal is no place for a file.
func (o output) toStdout(e *env, file, instead string) error {
	switch {
	case file != "-":
		return nil
	case o.JSON:
		return usageError{fmt.Errorf("--json prints on the standard output, and - puts the file there: leave one of them out, as in handclasp %s --json", instead)}
	case isTerminal(e.stdout):
		return usageError{fmt.Errorf("- puts the file on the standard output, and that is a terminal: redirect it, or name a file as in handclasp %s", instead)}
	}
	return nil
}

// backup copies the hub's backup to w and checks on the way that it is whole: a hub that fails in
// the middle cannot say so otherwise.
func (o *operatorClient) backup(e *env, w io.Writer, quiet bool) (store.BackupInfo, error) {
	resp, err := o.open(http.MethodGet, "/operator/backup", nil)
	if err != nil {
		return store.BackupInfo{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	p := newProgress(e.stderr, quiet)
	defer p.end()
	info, err := store.CheckBackup(io.TeeReader(resp.Body, w), func(rows int64) {
		p.show(func() string { return fmt.Sprintf("backup: %d rows so far", rows) })
	})
	switch {
	case err == nil:
		return info, nil
	case e.ctx.Err() != nil:
		return info, errors.New("the backup was cancelled, and what came of it is none")
	case errors.As(err, new(store.BadBackupError)):
		return info, errors.New("the backup broke off, and what came of it is none. See that the hub runs, and repeat the command")
	}
	return info, fmt.Errorf("the backup broke off, and what came of it is none: %w. See that the hub runs, and repeat the command", err)
}

type restoreCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	File         string `arg:"" help:"File that handclasp backup wrote."`
}

// Help is printed by --help.
func (c *restoreCmd) Help() string {
	return `The hub to fill must be new: a folder without a hub, or an empty PostgreSQL database. The whole file is checked before anything is written, and a restore that fails leaves no hub behind. Agents keep their keys and people their sessions. A reader that follows the log is told cursor_expired and begins anew.

Examples:
  handclasp restore handclasp.backup --data ~/restored
  createdb handclasp && handclasp restore handclasp.backup --database-url postgres:///handclasp`
}

func (c *restoreCmd) Run(e *env) error {
	if err := c.Where.Check(); err != nil {
		return usageError{err}
	}
	file, size, err := openFile(c.File)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	p := newProgress(e.stderr, c.JSON)
	defer p.end()
	whole, err := store.CheckBackup(bounded{e.ctx, file}, func(rows int64) {
		p.show(func() string { return fmt.Sprintf("restore: checked %d rows so far", rows) })
	})
	if err != nil {
		return c.explain(e, err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("%s cannot be read twice: %w. Copy it to a regular file first", c.File, plainError(err))
	}
	cfg := store.Config{URL: c.DatabaseURL}
	where := "the PostgreSQL database"
	if c.DatabaseURL == "" {
		if err := owner.Make(c.Data); err != nil {
			return err
		}
		own, err := owner.Take(c.Data)
		if err != nil {
			return err
		}
		defer own.Release()
		cfg.Path, where = databaseFile(c.Data), c.Data
	}
	info, err := store.Restore(e.ctx, cfg, file, func(rows int64) {
		p.show(func() string { return fmt.Sprintf("restore: %d of %d rows", rows, whole.Total()) })
	})
	if err != nil {
		return c.explain(e, err)
	}
	p.end()
	if c.JSON {
		return printJSON(e, newSaved(c.File, size, &info))
	}
	_, err = fmt.Fprintf(e.stdout, "%s holds the %d rows of %s: a hub on %s as it was at %s, schema %d. Start it with: handclasp serve%s\n",
		where, info.Total(), c.File, info.Database, info.CreatedAt.UTC().Format(time.RFC3339), info.Schema, c.flag())
	return err
}

// flag is how serve is told where the hub is. The address of PostgreSQL may hold a password.
func (c *restoreCmd) flag() string {
	if c.DatabaseURL != "" {
		return " --database-url …"
	}
	return " --data " + shellWords(c.Data)
}

func (c *restoreCmd) explain(e *env, err error) error {
	var bad store.BadBackupError
	var path *os.PathError
	switch {
	case e.ctx.Err() != nil:
		return errors.New("the restore was cancelled. Nothing was changed")
	case errors.As(err, &bad):
		return fmt.Errorf("%s: %w. Nothing was changed", c.File, err)
	case errors.As(err, &path) && path.Path == c.File:
		return fmt.Errorf("%s cannot be read: %w. Nothing was changed", c.File, path.Err)
	}
	return err
}

// openFile opens a file to read, and says plainly what is wrong with its name.
func openFile(path string) (*os.File, int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, 0, fmt.Errorf("there is no file %s. Name one that handclasp backup wrote", path)
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%s cannot be read: %w. Name a file that you may read", path, plainError(err))
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder. Name a file that handclasp backup wrote", path)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// bounded is a reader that ends with a context.
type bounded struct {
	ctx context.Context //nolint:containedctx // it lives for one call
	r   io.Reader
}

func (b bounded) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.r.Read(p)
}

type exportCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	After        string `help:"Only events behind this cursor, which each line carries. Default: from the beginning." placeholder:"CURSOR" default:"0"`
	Output       string `short:"o" name:"output" help:"File to write, readable by you alone. Default: - is the standard output." placeholder:"FILE" default:"-"`
	Force        bool   `help:"Replace FILE if it exists."`
}

// Help is printed by --help.
func (c *exportCmd) Help() string {
	return `Each line is one event: what happened to which handoff, by whom, when. Events hold ids and states and never a text. It ends at the end of the log; go on later with --after and the cursor of the last line.

Examples:
  handclasp export | jq -r 'select(.type == "handoff.completed") | .handoff_id'
  handclasp export -o events.ndjson
  handclasp export --after "$(tail -n 1 events.ndjson | jq -r .cursor)" -o more.ndjson`
}

func (c *exportCmd) Run(e *env) error {
	if c.Output == "-" && c.JSON {
		return c.toStdout(e, c.Output, "export -o FILE")
	}
	return operateAtLength(e, &c.Where, func(o *operatorClient) error {
		if c.Output == "-" {
			_, _, err := o.export(e, e.stdout, c.After, false)
			return err
		}
		var n int
		var next string
		size, err := intoFile(c.Output, c.Force, func(w io.Writer) (err error) {
			n, next, err = o.export(e, w, c.After, c.JSON)
			return err
		})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, map[string]any{"file": c.Output, "bytes": size, "events": n, "next_cursor": next})
		}
		_, err = fmt.Fprintf(e.stdout, "%s holds %d events, %s. Later ones: handclasp export --after %s\n", c.Output, n, sized(size), next)
		return err
	})
}

// export writes the log behind a cursor to its end, and returns the cursor to go on with.
func (o *operatorClient) export(e *env, w io.Writer, after string, quiet bool) (n int, next string, err error) {
	p := newProgress(e.stderr, quiet)
	defer p.end()
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for next = after; ; {
		var page restapi.Events
		if err := o.get("/operator/events?cursor="+url.QueryEscape(next), &page); err != nil {
			return n, next, err
		}
		for i := range page.Events {
			if err := enc.Encode(&page.Events[i]); err != nil {
				return n, next, err
			}
			n++
			p.show(func() string { return fmt.Sprintf("export: %d events so far", n) })
		}
		if len(page.Events) == 0 {
			return n, next, nil
		}
		next = page.NextCursor
	}
}
