package restapi

import (
	"net/http"
	"time"
)

// backupStall is how long a reader of a backup may take nothing. It holds a snapshot of the database
// meanwhile, and nobody wants one held for ever.
const backupStall = 2 * time.Minute

// backup streams a backup. One that fails in its middle breaks the connection off, and what came
// until then lacks its last line: the reader notices in both ways.
func (o *operator) backup(w http.ResponseWriter, r *http.Request) {
	out := &stream{w: w, control: http.NewResponseController(w)}
	err := o.hub.Backup(r.Context(), asOperator, out)
	switch {
	case err == nil:
	case !out.began:
		o.fail(w, r, err)
	default:
		// A fault of the database is in the log already; mostly it is the reader who left.
		o.log.InfoContext(r.Context(), "a backup broke off", "error", err)
		panic(http.ErrAbortHandler)
	}
}

// stream is an answer that ends when its reader stalls.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	began   bool
}

func (s *stream) Write(p []byte) (int, error) {
	if !s.began {
		s.began = true
		s.w.Header().Set("Content-Type", "application/gzip")
	}
	_ = s.control.SetWriteDeadline(time.Now().Add(backupStall)) // not every writer has one
	return s.w.Write(p)
}
