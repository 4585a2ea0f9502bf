package hubtest

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"
)

// ErrEnded is the answer to a request whose process ended before it answered.
var ErrEnded = errors.New("the process closed its stdout")

// Stdio is an MCP client on the pipes of a process: one JSON-RPC message is one line.
type Stdio struct {
	in    io.WriteCloser
	ended chan struct{}

	mu      sync.Mutex
	last    int
	waiting map[string]chan []byte // by request id
	strays  []string
}

// NewStdio speaks to a process through its stdin and stdout.
func NewStdio(stdin io.WriteCloser, stdout io.Reader) *Stdio {
	s := &Stdio{in: stdin, ended: make(chan struct{}), waiting: map[string]chan []byte{}}
	go s.read(bufio.NewReader(stdout))
	return s
}

// Initialize goes through the handshake; after it the process is ready.
func (s *Stdio) Initialize() error {
	_, err := s.Request("initialize", json.RawMessage(
		`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}`))
	if err != nil {
		return err
	}
	return s.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

// Request sends a request and waits for its answer, which it returns as it came.
func (s *Stdio) Request(method string, params any) ([]byte, error) {
	answer, ok := <-s.Begin(method, params)
	if !ok {
		return nil, ErrEnded
	}
	return answer, nil
}

// Begin sends a request. The channel brings its answer, or is closed when none can come any more.
func (s *Stdio) Begin(method string, params any) <-chan []byte {
	answer := make(chan []byte, 1)
	s.mu.Lock()
	s.last++
	id := s.last
	if s.waiting == nil {
		close(answer)
	} else {
		s.waiting[strconv.Itoa(id)] = answer
	}
	s.mu.Unlock()
	// A process that is gone is noticed where its answers are read.
	_ = s.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	return answer
}

// Call is Begin for a tool.
func (s *Stdio) Call(tool string, args map[string]any) <-chan []byte {
	return s.Begin("tools/call", map[string]any{"name": tool, "arguments": args})
}

// Close closes the process's stdin, which asks it to end.
func (s *Stdio) Close() error { return s.in.Close() }

// Ended is closed once the process has closed its stdout.
func (s *Stdio) Ended() <-chan struct{} { return s.ended }

// Strays are the lines that answered nothing that was open: a second answer, or no protocol.
func (s *Stdio) Strays() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.strays...)
}

func (s *Stdio) write(message any) error {
	line, err := json.Marshal(message)
	if err != nil {
		return err
	}
	// A pipe takes one Write after the other as a whole.
	_, err = s.in.Write(append(line, '\n'))
	return err
}

func (s *Stdio) read(out *bufio.Reader) {
	defer close(s.ended)
	for {
		line, err := out.ReadBytes('\n')
		if len(line) > 0 {
			s.took(line)
		}
		if err != nil {
			break
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, answer := range s.waiting {
		close(answer)
	}
	s.waiting = nil
}

func (s *Stdio) took(line []byte) {
	var got struct {
		ID json.RawMessage `json:"id"`
	}
	_ = json.Unmarshal(line, &got) // what is no JSON answers nothing
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := s.waiting[string(got.ID)]
	if answer == nil {
		s.strays = append(s.strays, string(line))
		return
	}
	delete(s.waiting, string(got.ID))
	answer <- line
}
