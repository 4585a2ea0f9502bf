package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result builds what a tool returns, and is the one place where text written by another actor
// enters a result (domain: Provenance). It is the choke point because there is no other way in:
//
//   - [result.prose] takes text that people or agents wrote. Unless it is the reader's own, it
//     stands neutralised and inside the fence.
//   - [result.data] takes machine data: payloads, metadata, diffs, commands, paths, URLs. It is
//     returned unaltered, and unless it is the reader's own its path is listed in
//     provenance.untrusted.
//   - [result.records] takes lists of foreign objects, artifacts above all: data with prose inside.
//   - [result.token] takes what the hub made or checked: ids, handles, states, cursors. It looks
//     at the shape: anything with a space or a bracket is handled as another's prose, so a
//     summary passed here by mistake ends up in the fence.
//   - Field names and fixed sentences are of type [lit]: constants of our source fit, and a
//     variable does not without a conversion that a review sees.
//
// A tool opens one result, writes its fields in order, says with [result.from] who wrote the
// object at hand, and ends with [result.finish]:
//
//	r := newResult()
//	r.head("Thread %s is %s.", t.ID, t.Status)
//	r.token("thread_id", t.ID)
//	r.prose("summary", t.Summary, t.Sender == actor.Handle)
//	r.list("messages", len(t.Messages), 0, func(i int) {
//		m, own := t.Messages[i], t.Messages[i].From == actor.Handle
//		r.token("message_id", m.ID)
//		r.prose("body", m.Body, own)
//		r.data("payload", m.Payload, own)
//		r.from(provenance{Origin: "teammate", Sender: m.From, SenderVerified: true}, own)
//	})
//	structured, text := r.finish()
//
// How a test proves it for every tool: let another actor write a canary word, one that token
// would let pass such as CANARY_7f, into every free field that there is; call each tool; then
// outsideFences(structured) and outsideFences(text), both in fence_helper_test.go, must not
// contain it.
//
// A result is for one goroutine and one call.
type result struct {
	buf    []byte  // the object so far: prose neutralised, fences not yet in
	fences []int   // where in buf a fence opens and closes, in turns
	seals  []int   // where in buf the marker's value goes
	frames []frame // the open objects, outermost first
	header string
	// foreign is whether anything of another actor is in.
	foreign bool
}

// frame is one object that is being written.
type frame struct {
	at        string // its path within the object around it
	untrusted []string
	foreign   bool
	author    *provenance
	own       bool
}

// lit is text that stands in our source.
type lit string

// provenance says, beside a message or an artifact, who wrote it and how far it may be trusted.
// The tool fills the first three; [result.from] knows the rest.
type provenance struct {
	// Origin is teammate, pool_creator, business, person, a2a_client or system.
	Origin string `json:"origin"`
	// Sender is the handle of the author, and SenderVerified whether a credential proved it.
	Sender         string `json:"sender"`
	SenderVerified bool   `json:"sender_verified"`
	// ContentTrust is untrusted or own, and InstructionPolicy data_only or none accordingly.
	ContentTrust      string `json:"content_trust"`
	InstructionPolicy string `json:"instruction_policy"`
	// Fence is the marker between «untrusted …» and «/untrusted …» around prose.
	Fence string `json:"fence,omitempty"`
	// Untrusted are the paths of machine data by others, from the object that holds this
	// provenance: payload, artifacts[0].diff.
	Untrusted []string `json:"untrusted"`
}

// newResult opens a result.
func newResult() *result {
	r := &result{buf: make([]byte, 1, 2048), frames: make([]frame, 1, 4)}
	r.buf[0] = '{'
	return r
}

// head sets the trusted line above the fence of the text block; see [trusted].
func (r *result) head(format lit, args ...any) {
	r.header = strings.ReplaceAll(trusted(format, args...), "\n", " ")
}

// trusted is a sentence of ours. Its arguments are ids, handles, states and numbers, printed with
// %s, %d or %v; one that is not shaped like a token is left out.
func trusted(format lit, args ...any) string {
	for i, a := range args {
		if !isToken(fmt.Sprint(a)) {
			args[i] = "(see below)"
		}
	}
	return fmt.Sprintf(string(format), args...)
}

// prose writes text that a person or an agent wrote.
func (r *result) prose(name lit, s string, own bool) {
	r.name(name)
	r.fenced(s, own)
}

// proses writes a list of such texts.
func (r *result) proses(name lit, list []string, own bool) {
	r.name(name)
	r.buf = append(r.buf, '[')
	for i, s := range list {
		if i > 0 {
			r.buf = append(r.buf, ',')
		}
		r.fenced(s, own)
	}
	r.buf = append(r.buf, ']')
}

func (r *result) fenced(s string, own bool) {
	if own || s == "" {
		r.buf = appendJSONString(r.buf, s)
		return
	}
	r.buf = append(r.buf, '"')
	r.fences = append(r.fences, len(r.buf))
	r.buf = r.buf[:len(r.buf)-1]
	r.buf = appendJSONString(r.buf, neutralise(s))
	r.fences = append(r.fences, len(r.buf)-1)
	r.mark()
}

// mark notes that the object at hand holds something of another actor.
func (r *result) mark() {
	r.foreign = true
	r.frames[len(r.frames)-1].foreign = true
}

// data writes machine data, unaltered: a string, raw JSON, or any value that marshals. Raw JSON
// that is empty is null; raw JSON that is broken is written as a string.
func (r *result) data(name lit, v any, own bool) {
	r.name(name)
	switch v := v.(type) {
	case string:
		r.buf = appendJSONString(r.buf, v)
	case json.RawMessage:
		r.raw(v)
	default:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			// Only a programming error gets here: a type that does not marshal.
			panic(fmt.Sprintf("mcpserver: result field %s: %v", name, err))
		}
		r.buf = append(r.buf, bytes.TrimSpace(b.Bytes())...)
	}
	if !own {
		f := &r.frames[len(r.frames)-1]
		f.untrusted = append(f.untrusted, string(name))
		r.mark()
	}
}

// records writes a list of raw JSON objects by another actor, such as artifacts, whose field names
// are theirs too. Fields named in prose that hold text are fenced; everything else is machine
// data, and the whole list is listed as untrusted. What is no object is written as data.
func (r *result) records(name lit, list []json.RawMessage, own bool, prose ...lit) {
	r.name(name)
	r.buf = append(r.buf, '[')
	for i, raw := range list {
		if i > 0 {
			r.buf = append(r.buf, ',')
		}
		r.record(raw, own, prose)
	}
	r.buf = append(r.buf, ']')
	if !own && len(list) > 0 {
		f := &r.frames[len(r.frames)-1]
		f.untrusted = append(f.untrusted, string(name))
		r.mark()
	}
}

func (r *result) record(raw json.RawMessage, own bool, prose []lit) {
	s := scanner{data: bytes.TrimSpace(raw)}
	if probe := s; own || s.peek() != '{' || probe.skip(1) != fine || probe.i < len(s.data) {
		r.raw(raw)
		return
	}
	// The text was checked just now, so no step below can fail.
	for s.i < len(s.data) {
		start := s.i
		if s.peek() != '"' {
			s.i++ // a brace, a comma
			r.buf = append(r.buf, s.data[start:s.i]...)
			s.ws()
			continue
		}
		key, _ := s.text()
		s.ws()
		s.take(':')
		s.ws()
		r.buf = append(append(r.buf, key.lit...), ':')
		value := s.i
		if s.peek() == '"' && slices.Contains(prose, lit(key.decode())) {
			t, _ := s.text()
			r.fenced(string(t.decode()), false)
		} else {
			_ = s.skip(1)
			r.buf = append(r.buf, s.data[value:s.i]...)
		}
		s.ws()
	}
}

// raw copies JSON; what is empty is null, and what is broken becomes a string.
func (r *result) raw(v json.RawMessage) {
	s := scanner{data: bytes.TrimSpace(v)}
	switch bad := s.skip(1); {
	case len(s.data) == 0:
		r.buf = append(r.buf, "null"...)
	case bad == fine && s.i == len(s.data):
		r.buf = append(r.buf, s.data...)
	default:
		r.buf = appendJSONString(r.buf, string(v))
	}
}

// token writes a word that the hub made or checked: an id, a handle, a state, a cursor, one of
// its URLs. What is not shaped like one is written as another's prose.
func (r *result) token(name lit, s string) {
	r.prose(name, s, isToken(s))
}

// tokens writes a list of such words.
func (r *result) tokens(name lit, list []string) {
	r.name(name)
	r.buf = append(r.buf, '[')
	for i, s := range list {
		if i > 0 {
			r.buf = append(r.buf, ',')
		}
		r.fenced(s, isToken(s))
	}
	r.buf = append(r.buf, ']')
}

// say writes a sentence of ours.
func (r *result) say(name, sentence lit) {
	r.name(name)
	r.buf = appendJSONString(r.buf, string(sentence))
}

// num writes a whole number.
func (r *result) num(name lit, n int64) {
	r.name(name)
	r.buf = strconv.AppendInt(r.buf, n, 10)
}

// flag writes a truth value.
func (r *result) flag(name lit, v bool) {
	r.name(name)
	r.buf = strconv.AppendBool(r.buf, v)
}

// time writes an instant as RFC 3339 UTC with milliseconds; nothing for the zero time.
func (r *result) time(name lit, t time.Time) {
	if t.IsZero() {
		return
	}
	r.name(name)
	r.buf = append(t.UTC().AppendFormat(append(r.buf, '"'), "2006-01-02T15:04:05.000Z"), '"')
}

// null writes a field that has no value.
func (r *result) null(name lit) {
	r.name(name)
	r.buf = append(r.buf, "null"...)
}

// object writes an object; fields writes what is in it.
func (r *result) object(name lit, fields func()) {
	r.name(name)
	r.nested(string(name), fields)
}

// list writes up to n objects and returns how many it wrote; item writes the fields of one. With
// a budget above 0 it stops before the item that would make the result larger than that many
// bytes, but never before the first (contracts: errors, a page holds whole items).
func (r *result) list(name lit, n, budget int, item func(i int)) int {
	r.name(name)
	r.buf = append(r.buf, '[')
	written := 0
	for ; written < n; written++ {
		f := &r.frames[len(r.frames)-1]
		buf, fences, seals := len(r.buf), len(r.fences), len(r.seals)
		untrusted, inFrame, foreign := len(f.untrusted), f.foreign, r.foreign
		if written > 0 {
			r.buf = append(r.buf, ',')
		}
		r.nested(string(name)+"["+strconv.Itoa(written)+"]", func() { item(written) })
		if budget > 0 && written > 0 && r.size() > budget {
			f = &r.frames[len(r.frames)-1]
			r.buf, r.fences, r.seals = r.buf[:buf], r.fences[:fences], r.seals[:seals]
			f.untrusted, f.foreign, r.foreign = f.untrusted[:untrusted], inFrame, foreign
			break
		}
	}
	r.buf = append(r.buf, ']')
	return written
}

// size is about how many bytes the structured result has so far.
func (r *result) size() int {
	return len(r.buf) + (len(r.fences)+len(r.seals))*len(`«untrusted 0123456789abcdef»\n`)
}

// from says who wrote the object at hand; own means that it is the reader. It may stand anywhere
// among the fields. An object without it is described by the nearest one around it that has one,
// and the outermost gets one from the hub if need be.
func (r *result) from(author provenance, own bool) {
	f := &r.frames[len(r.frames)-1]
	f.author, f.own = &author, own
}

func (r *result) nested(at string, fields func()) {
	r.buf = append(r.buf, '{')
	r.frames = append(r.frames, frame{at: at})
	fields()
	f := r.frames[len(r.frames)-1]
	if f.author != nil {
		r.seal(f)
	}
	r.buf = append(r.buf, '}')
	r.frames = r.frames[:len(r.frames)-1]
	if f.author == nil && f.foreign {
		outer := &r.frames[len(r.frames)-1]
		outer.foreign = true
		for _, path := range f.untrusted {
			outer.untrusted = append(outer.untrusted, f.at+"."+path)
		}
	}
}

// seal writes the provenance of a frame.
func (r *result) seal(f frame) {
	trust, policy := "untrusted", "data_only"
	if f.own && !f.foreign {
		trust, policy = "own", "none"
	}
	r.name("provenance")
	b := appendJSONString(append(r.buf, `{"origin":`...), f.author.Origin)
	r.buf = append(b, `,"sender":`...)
	r.fenced(f.author.Sender, isToken(f.author.Sender))
	b = strconv.AppendBool(append(r.buf, `,"sender_verified":`...), f.author.SenderVerified)
	b = append(append(append(b, `,"content_trust":"`...), trust...), `","instruction_policy":"`...)
	b = append(append(b, policy...), '"')
	// The outermost names the marker of whatever the result holds.
	if f.foreign || len(r.frames) == 1 && r.foreign {
		b = append(b, `,"fence":"`...)
		r.seals = append(r.seals, len(b))
		b = append(b, '"')
	}
	r.buf = append(appendStrings(append(b, `,"untrusted":`...), f.untrusted), '}')
}

// finish closes the result and gives both of its renderings: the structured one, where each
// prose by another actor stands in a fence of its own, and the text block.
func (r *result) finish() (structured json.RawMessage, text string) {
	root := r.frames[0]
	if root.author == nil && r.foreign {
		root.author = &provenance{Origin: "system", Sender: "hub", SenderVerified: true}
	}
	if root.author != nil {
		r.seal(root)
	}
	r.buf = append(r.buf, '}')
	f := newFencer(r.buf)
	return f.structured(r), textBlock(r.header, f.sealed(r), f, r.foreign)
}

// name starts a field.
func (r *result) name(name lit) {
	if c := r.buf[len(r.buf)-1]; c != '{' && c != '[' {
		r.buf = append(r.buf, ',')
	}
	r.buf = append(appendJSONString(r.buf, string(name)), ':')
}
