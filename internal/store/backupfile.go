package store

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"time"

	"handclasp/internal/handoff"
)

// A backup is the same for both databases: gzip of lines of JSON. First a header, then for each
// table a line with its columns and a line for each of its rows, last a trailer with the number of
// rows of each table and the SHA-256 of all lines before it. What has no trailer is not whole.

const (
	backupFormat = 1
	// maxBackupLine is more than any row can take: a body of 64 MiB, each byte of it escaped.
	maxBackupLine = 512 << 20
	// maxBackupHeader is more than the header takes.
	maxBackupHeader = 64 << 10
	// maxBackupValues is more than any line holds, which a long one must not exceed: a few kilobytes
	// of a file can hold millions of numbers, and each takes a hundred bytes when it is read.
	maxBackupValues = 1000
)

// backupStart is how the header begins.
var backupStart = []byte(`{"handclasp_backup":`)

// BackupInfo is what a backup says of itself.
type BackupInfo struct {
	Format    int       `json:"handclasp_backup"`
	Program   string    `json:"program"`  // version of the program that made it
	Schema    int64     `json:"schema"`   // version of the schema its rows have
	Database  string    `json:"database"` // sqlite or postgres: where it came from
	CreatedAt time.Time `json:"created_at"`
	Tables    []string  `json:"tables"`
	// Rows of each table; known once the trailer was read.
	Rows map[string]int64 `json:"rows,omitempty"`
}

// Total is the number of rows in all tables.
func (i *BackupInfo) Total() (n int64) {
	for _, rows := range i.Rows {
		n += rows
	}
	return n
}

// Other lines of a backup. Exactly one of the groups is filled in.
type backupLine struct {
	Table   string   `json:"table,omitempty"`
	Columns []string `json:"columns,omitempty"`

	Of  string `json:"t,omitempty"` // table of a row
	Row []any  `json:"r,omitempty"` // values in the order of its columns

	End    bool             `json:"end,omitempty"`
	Rows   map[string]int64 `json:"rows,omitempty"`
	SHA256 string           `json:"sha256,omitempty"`
}

// backupWriter writes the lines and counts the rows.
type backupWriter struct {
	gz   *gzip.Writer
	enc  *json.Encoder
	sum  hash.Hash
	rows map[string]int64
	// failed is the first error of the writer below, in contrast to one of the database.
	failed error
}

func newBackupWriter(w io.Writer) *backupWriter {
	gz, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is a valid one
	b := &backupWriter{gz: gz, sum: sha256.New(), rows: map[string]int64{}}
	b.enc = json.NewEncoder(io.MultiWriter(gz, b.sum))
	b.enc.SetEscapeHTML(false)
	return b
}

func (b *backupWriter) line(v any) error {
	if b.failed == nil {
		b.failed = b.enc.Encode(v)
	}
	return b.failed
}

func (b *backupWriter) table(t *table) error {
	b.rows[t.name] = 0
	return b.line(backupLine{Table: t.name, Columns: t.names()})
}

func (b *backupWriter) row(table string, values []any) error {
	b.rows[table]++
	return b.line(backupLine{Of: table, Row: values})
}

// end writes the trailer. Without it nothing of the backup counts.
func (b *backupWriter) end() error {
	if err := b.line(backupLine{End: true, Rows: b.rows, SHA256: hex.EncodeToString(b.sum.Sum(nil))}); err != nil {
		return err
	}
	b.failed = b.gz.Close()
	return b.failed
}

// BadBackupError says why a file cannot be restored.
type BadBackupError struct{ Reason string }

func (e BadBackupError) Error() string { return e.Reason }

func badBackup(format string, args ...any) error {
	return BadBackupError{fmt.Sprintf(format, args...)}
}

var (
	errNoBackup  = badBackup("it is not a backup of Handclasp; name a file that handclasp backup wrote")
	errCutBackup = badBackup("it is cut short; take another backup")
)

func damaged(format string, args ...any) error {
	return badBackup("it is damaged (%s); take another backup", fmt.Sprintf(format, args...))
}

// backupReader reads a backup line by line and trusts none of them before the trailer.
type backupReader struct {
	in      *bufio.Reader
	sum     hash.Hash
	info    BackupInfo
	rows    map[string]int64
	columns int         // of the table being read
	ahead   *backupLine // read and not used yet
	buf     []byte
}

// openBackup reads the header.
func openBackup(r io.Reader) (*backupReader, error) {
	gz, err := gzip.NewReader(r)
	if err != nil {
		if errors.Is(err, gzip.ErrHeader) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, errNoBackup
		}
		return nil, err
	}
	b := &backupReader{in: bufio.NewReaderSize(gz, 64<<10), sum: sha256.New(), rows: map[string]int64{}}
	line, err := b.read(maxBackupHeader)
	if !bytes.HasPrefix(b.buf, backupStart) && !bytes.HasPrefix(backupStart, b.buf) {
		return nil, errNoBackup
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(line, &b.info); err != nil || b.info.Format < 1 {
		return nil, errNoBackup
	}
	if b.info.Format > backupFormat || b.info.Schema > SchemaVersion {
		return nil, badBackup("Handclasp %s made it with schema %d, and this program knows schemas up to %d; restore it with that version or a later one",
			handoff.Quote(b.info.Program), b.info.Schema, SchemaVersion)
	}
	if b.info.Schema < 1 {
		return nil, damaged("it names schema %d", b.info.Schema)
	}
	b.sum.Write(line)
	return b, nil
}

// read gives the next line; it is valid until the next call.
func (b *backupReader) read(longest int) ([]byte, error) {
	b.buf = b.buf[:0]
	for {
		part, err := b.in.ReadSlice('\n')
		b.buf = append(b.buf, part...)
		switch {
		case err == nil:
			return b.buf, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, explainRead(err)
		case len(b.buf) > longest:
			return nil, damaged("a line is longer than any that a backup has")
		}
	}
}

// explainRead tells a fault of the content from one of reading it.
func explainRead(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errCutBackup
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.As(err, &corrupt):
		return damaged("%v", err)
	}
	return err
}

// next gives the next line and adds it to the sum, unless it is the trailer.
func (b *backupReader) next() (*backupLine, error) {
	if l := b.ahead; l != nil {
		b.ahead = nil
		return l, nil
	}
	text, err := b.read(maxBackupLine)
	if err != nil {
		return nil, err
	}
	if crowded(text) {
		return nil, damaged("a line holds more values than any table has columns")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	dec.DisallowUnknownFields()
	var l backupLine
	if err := dec.Decode(&l); err != nil {
		return nil, damaged("a line is not what it should be: %v", err)
	}
	if !l.End {
		b.sum.Write(text)
	}
	return &l, nil
}

// crowded reports whether a line holds more values than a backup can have in one.
func crowded(line []byte) bool {
	if len(line) < maxBackupHeader {
		return false
	}
	values, quoted := 0, false
	for i := 0; i < len(line) && values < maxBackupValues; i++ {
		switch c := line[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			values++
		}
	}
	return values == maxBackupValues
}

// table goes on to the next table. [io.EOF] means that the trailer came and all is as it says.
func (b *backupReader) table() (name string, columns []string, err error) {
	l, err := b.next()
	if err != nil {
		return "", nil, err
	}
	if l.End {
		return "", nil, b.finish(l)
	}
	if len(b.rows) == len(b.info.Tables) || l.Table != b.info.Tables[len(b.rows)] {
		return "", nil, damaged("table %s stands where another should", handoff.Quote(l.Table))
	}
	if _, twice := b.rows[l.Table]; twice {
		return "", nil, damaged("table %s is in it twice", handoff.Quote(l.Table))
	}
	b.rows[l.Table] = 0
	b.columns = len(l.Columns)
	return l.Table, l.Columns, nil
}

// row gives the next row of the table, texts and int64s, or [io.EOF] behind the last.
func (b *backupReader) row() ([]any, error) {
	l, err := b.next()
	if err != nil {
		return nil, err
	}
	if l.Of == "" {
		b.ahead = l
		return nil, io.EOF
	}
	if l.Of != b.info.Tables[len(b.rows)-1] || len(l.Row) != b.columns {
		return nil, damaged("a row of %s does not fit its table", handoff.Quote(l.Of))
	}
	for i, v := range l.Row {
		switch v := v.(type) {
		case string:
		case json.Number:
			if l.Row[i], err = v.Int64(); err != nil {
				return nil, damaged("a row of %s holds a number that is none of ours", l.Of)
			}
		default:
			return nil, damaged("a row of %s holds neither a text nor a number", l.Of)
		}
	}
	b.rows[l.Of]++
	return l.Row, nil
}

// finish compares the trailer with what was read, and wants nothing behind it.
func (b *backupReader) finish(l *backupLine) error {
	if len(b.rows) != len(b.info.Tables) {
		return damaged("%d of its %d tables are missing", len(b.info.Tables)-len(b.rows), len(b.info.Tables))
	}
	if l.SHA256 != hex.EncodeToString(b.sum.Sum(nil)) || !maps.Equal(l.Rows, b.rows) {
		return damaged("its content is not what its last line says")
	}
	// The end of the compressed stream holds a checksum too.
	switch _, err := b.in.ReadByte(); {
	case err == nil:
		return damaged("something follows its last line")
	case !errors.Is(err, io.EOF):
		return explainRead(err)
	}
	b.info.Rows = b.rows
	return io.EOF
}

// CheckBackup reads a backup to its end and reports whether it is whole, without any database.
// progress, if not nil, is told the number of rows so far.
func CheckBackup(r io.Reader, progress func(rows int64)) (BackupInfo, error) {
	b, err := openBackup(r)
	if err != nil {
		return BackupInfo{}, err
	}
	if i := slices.IndexFunc(b.info.Tables, func(name string) bool { return !slices.Contains(tables, name) }); i >= 0 {
		return BackupInfo{}, damaged("it names a table %s", handoff.Quote(b.info.Tables[i]))
	}
	var n int64
	for {
		if _, _, err := b.table(); err != nil {
			if errors.Is(err, io.EOF) {
				return b.info, nil
			}
			return BackupInfo{}, err
		}
		for {
			if _, err := b.row(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return BackupInfo{}, err
			}
			n++
			if progress != nil {
				progress(n)
			}
		}
	}
}
