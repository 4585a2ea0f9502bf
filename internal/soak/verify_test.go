//go:build soak

package soak

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"handclasp/internal/handoff"
)

// findings are what a look at the hub or its database gave.
type findings struct {
	found   map[string]int     // per op id: how often its effect is there
	at      map[string]place   // where the message of an op is
	threads map[string]*status // by thread id
	gaps    []string
	twice   []string
}

type place struct {
	thread, message string
	no              int
}

type status struct {
	state    string
	accepted bool
	epoch    int
	result   string // the id of the op that completed it
}

func newFindings() *findings {
	return &findings{found: map[string]int{}, at: map[string]place{}, threads: map[string]*status{}}
}

var idPattern = regexp.MustCompile(`soak-[0-9]+-(?:setup|[0-9]+)-[0-9]+`)

// message counts one message; no must be the next number of its thread.
func (f *findings) message(thread, id string, no, want int, body string) {
	if no != want {
		f.gaps = append(f.gaps, fmt.Sprintf("thread %s: sequence_no %d where %d should be", thread, no, want))
	}
	o := idPattern.FindString(body)
	f.found[o]++
	f.at[o] = place{thread, id, no}
}

func (f *findings) thread(id string, s *status) {
	if f.threads[id] != nil {
		f.twice = append(f.twice, "thread "+id+" is there twice")
	}
	f.threads[id] = s
	if s.result != "" {
		f.found[s.result]++
	}
}

// count compares what was acknowledged with what is there.
func (f *findings) count(ops []*op) (found int, lost, doubled []string) {
	known := map[string]bool{}
	for _, o := range ops {
		known[o.id] = true
		if o.tool != "accept_handoff" && f.found[o.id] > 1 {
			doubled = append(doubled, fmt.Sprintf("%s %s is there %d times", o.tool, o.id, f.found[o.id]))
		}
		if !o.acked {
			continue
		}
		if why := f.missing(o); why != "" {
			lost = append(lost, fmt.Sprintf("%s %s (thread %s): %s", o.tool, o.id, o.answer.ThreadID, why))
			continue
		}
		found++
	}
	for id, n := range f.found {
		if !known[id] {
			doubled = append(doubled, fmt.Sprintf("%q is there %d times and was never sent", id, n))
		}
	}
	return found, lost, append(doubled, f.twice...)
}

// missing says what of an acknowledged call is not there.
func (f *findings) missing(o *op) string {
	s := f.threads[o.answer.ThreadID]
	if s == nil {
		return "the thread is not there"
	}
	at := f.at[o.id]
	switch o.tool {
	case "handoff_to_teammate":
		if at.thread != o.answer.ThreadID || at.no != 1 {
			return fmt.Sprintf("its summary is at %+v", at)
		}
	case "send_message":
		if want := (place{o.answer.ThreadID, o.answer.MessageID, o.answer.SequenceNo}); at != want {
			return fmt.Sprintf("acknowledged as %+v, there is %+v", want, at)
		}
	case "accept_handoff":
		if !s.accepted || s.epoch != o.answer.ClaimEpoch {
			return fmt.Sprintf("acknowledged with claim_epoch %d, the thread is %s with %d", o.answer.ClaimEpoch, s.state, s.epoch)
		}
	case "complete_handoff":
		if s.state != "completed" || s.result != o.id {
			return fmt.Sprintf("the thread is %s, its result is by %q", s.state, s.result)
		}
	}
	return ""
}

// throughMCP reads everything that the agents of a round have sent, as they can: their inboxes
// to the last page, then every thread to its last message.
func throughMCP(hub string, members []agent) (*findings, error) {
	f := newFindings()
	type of struct {
		id     string
		sender agent
	}
	var list []of
	c := newClient(hub)
	defer c.close()
	for _, a := range members {
		args := map[string]any{"role": "sender", "status": handoff.TeamStatuses(), "limit": 200}
		seen := map[string]bool{}
		for {
			var page struct {
				Items []struct {
					ID string `json:"thread_id"`
				} `json:"items"`
				Next *string `json:"next_cursor"`
			}
			if err := c.call(a, "check_inbox", args, &page); err != nil {
				return nil, fmt.Errorf("check_inbox: %w", err)
			}
			for _, item := range page.Items {
				if seen[item.ID] {
					f.twice = append(f.twice, "check_inbox shows thread "+item.ID+" twice")
					continue
				}
				seen[item.ID] = true
				list = append(list, of{item.ID, a})
			}
			if page.Next == nil {
				break
			}
			args["cursor"] = *page.Next
		}
	}

	var mu sync.Mutex // guards f and failed
	var failed error
	var wg sync.WaitGroup
	work := make(chan of)
	for range 8 {
		wg.Go(func() {
			c := newClient(hub)
			defer c.close()
			for item := range work {
				pages, err := viewAll(c, item.sender, item.id)
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					f.view(item.id, pages)
				}
				mu.Unlock()
			}
		})
	}
	for _, item := range list {
		work <- item
	}
	close(work)
	wg.Wait()
	return f, failed
}

// view is a page of a thread.
type view struct {
	Status   string `json:"status"`
	Accepted string `json:"accepted_at"`
	Epoch    int    `json:"claim_epoch"`
	Result   string `json:"result_summary"`
	Messages []struct {
		ID   string `json:"message_id"`
		No   int    `json:"sequence_no"`
		Body string `json:"body"`
	} `json:"messages"`
	HasMore bool `json:"has_more"`
	Next    int  `json:"next_sequence_no"`
}

func viewAll(c *client, as agent, thread string) (pages []view, err error) {
	for after := 0; ; {
		var v view
		if err := c.call(as, "view_thread", map[string]any{"thread_id": thread, "after_sequence_no": after, "limit": 200}, &v); err != nil {
			return nil, fmt.Errorf("view_thread %s: %w", thread, err)
		}
		pages = append(pages, v)
		if !v.HasMore {
			return pages, nil
		}
		after = v.Next
	}
}

func (f *findings) view(id string, pages []view) {
	first := pages[0]
	f.thread(id, &status{first.Status, first.Accepted != "", first.Epoch, idPattern.FindString(first.Result)})
	want := 1
	for _, p := range pages {
		for _, m := range p.Messages {
			f.message(id, m.ID, m.No, want, m.Body)
			want++
		}
	}
}

// throughSQL reads the tables. On SQLite the hub must have ended.
func throughSQL(db *sql.DB) (*findings, error) {
	f := newFindings()
	ctx := context.Background()
	type counters struct{ messages, events int }
	counted := map[string]counters{}
	err := each(ctx, db, `SELECT id, state, epoch, accepted_at, result_summary, message_count, event_seq FROM handoffs`, func(r *sql.Rows) error {
		var id, result string
		var s status
		var accepted int64
		var c counters
		if err := r.Scan(&id, &s.state, &s.epoch, &accepted, &result, &c.messages, &c.events); err != nil {
			return err
		}
		s.accepted, s.result = accepted != 0, idPattern.FindString(result)
		counted[id] = c
		f.thread(id, &s)
		return nil
	})
	if err != nil {
		return nil, err
	}
	messages, events := map[string]int{}, map[string]int{}
	err = each(ctx, db, `SELECT handoff_id, id, sequence_no, body FROM messages ORDER BY handoff_id, sequence_no`, func(r *sql.Rows) error {
		var thread, id, body string
		var no int
		if err := r.Scan(&thread, &id, &no, &body); err != nil {
			return err
		}
		messages[thread]++
		f.message(thread, id, no, messages[thread], body)
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = each(ctx, db, `SELECT handoff_id, seq FROM events WHERE handoff_id <> '' ORDER BY handoff_id, seq`, func(r *sql.Rows) error {
		var thread string
		var seq int
		if err := r.Scan(&thread, &seq); err != nil {
			return err
		}
		events[thread]++
		if seq != events[thread] {
			f.gaps = append(f.gaps, fmt.Sprintf("thread %s: event_seq %d where %d should be", thread, seq, events[thread]))
		}
		return nil
	})
	for id, c := range counted {
		if got := (counters{messages[id], events[id]}); got != c {
			f.gaps = append(f.gaps, fmt.Sprintf("thread %s: its row counts %+v, there are %+v", id, c, got))
		}
	}
	return f, err
}

func each(ctx context.Context, db *sql.DB, query string, scan func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// eventLog follows the operator's event log across kills.
type eventLog struct {
	cursor string
	last   map[string]int // by handoff: its last event_seq
}

func (l *eventLog) read(events []event) (gaps []string) {
	for _, e := range events {
		if e.HandoffID == "" {
			continue
		}
		l.last[e.HandoffID]++
		if want := l.last[e.HandoffID]; e.Seq != want {
			gaps = append(gaps, fmt.Sprintf("handoff %s in the event log: event_seq %d where %d should be", e.HandoffID, e.Seq, want))
		}
	}
	return gaps
}

// some quotes the first of a list.
func some(list []string) string {
	list = slices.SortedFunc(slices.Values(list), cmp.Compare)
	if len(list) > 5 {
		list = append(list[:5:5], fmt.Sprintf("and %d more", len(list)-5))
	}
	return strings.Join(list, "\n  ")
}
