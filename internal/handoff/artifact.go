package handoff

import (
	"bytes"
	"encoding/json"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// The types of artifact (contracts: teammates, "Artifacts").
const (
	ArtifactFileDiff    = "file_diff"
	ArtifactFileRef     = "file_ref"
	ArtifactTestCommand = "test_command"
	ArtifactAPIContract = "api_contract"
	ArtifactLink        = "link"
)

// artifactFields lists the known fields of each type; the rest of an artifact is extra.
var artifactFields = map[string][]string{
	ArtifactFileDiff:    {"type", "path", "diff"},
	ArtifactFileRef:     {"type", "path", "git_sha", "lines"},
	ArtifactTestCommand: {"type", "command", "cwd"},
	ArtifactAPIContract: {"type", "schema_url", "inline"},
	ArtifactLink:        {"type", "url", "title"},
}

// ArtifactTypes lists the types in the order they are documented.
func ArtifactTypes() []string {
	return []string{ArtifactFileDiff, ArtifactFileRef, ArtifactTestCommand, ArtifactAPIContract, ArtifactLink}
}

// Artifact is a typed attachment. Raw is what was sent, extra fields included, with the
// space between tokens removed and every literal as it came; it is what JSON shows. The
// other fields are read from it, and only those of the type are set.
type Artifact struct {
	Type string
	Raw  json.RawMessage

	Path      string          // file_diff, file_ref
	Diff      string          // file_diff; any text, nothing parses it
	GitSHA    string          // file_ref
	Lines     []int64         // file_ref: nil, or [from, to]
	Command   string          // test_command
	Cwd       string          // test_command
	SchemaURL string          // api_contract
	Inline    json.RawMessage // api_contract
	URL       string          // link
	Title     string          // link
}

// MarshalJSON gives Raw.
func (a Artifact) MarshalJSON() ([]byte, error) {
	if a.Raw == nil {
		return []byte("null"), nil
	}
	return a.Raw, nil
}

// UnmarshalJSON reads back a stored artifact. It applies no limits: the operator may have
// lowered them since.
func (a *Artifact) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil // what encoding/json asks of every Unmarshaler
	}
	read, err := parseArtifact("artifact", b, Limits{})
	if err != nil {
		return err
	}
	*a = read
	return nil
}

// ParseArtifacts checks the artifacts of one message (contracts: teammates). More of them
// than the limit, or a value above its own, is content_too_large; everything else that is
// wrong is invalid_params naming the place, such as artifacts[2].url.
//
// The limits are TargetFile for path and cwd, Diff for diff and inline, ShortText for
// command and URLs, Reason for git_sha and title, and Metadata for the extra fields of one
// artifact together. A null in an optional field counts as absent.
func ParseArtifacts(field string, raw []json.RawMessage, lim Limits) ([]Artifact, error) {
	if over(len(raw), lim.Artifacts) {
		return nil, TooLarge(field, len(raw), lim.Artifacts, "artifacts")
	}
	artifacts := make([]Artifact, 0, len(raw))
	for i, r := range raw {
		a, err := parseArtifact(itemField(field, i), r, lim)
		if err != nil {
			return nil, err
		}
		artifacts = append(artifacts, a)
	}
	return artifacts, nil
}

func parseArtifact(field string, raw json.RawMessage, lim Limits) (Artifact, error) {
	if err := CheckRawJSON(field, raw, 0, 0); err != nil {
		return Artifact{}, err
	}
	o, err := parseObject(field, raw, `an object such as {"type":"link","url":"https://example.com/x"}`)
	if err != nil {
		return Artifact{}, err
	}
	r := artifactReader{field: field, object: o}
	a := Artifact{Type: r.required("type", 0)}
	if r.err != nil {
		return Artifact{}, r.err
	}
	switch a.Type {
	case ArtifactFileDiff:
		a.Path = r.required("path", lim.TargetFile)
		a.Diff = r.required("diff", lim.Diff)
	case ArtifactFileRef:
		a.Path = r.required("path", lim.TargetFile)
		a.GitSHA = r.optional("git_sha", lim.Reason)
		a.Lines = r.lines("lines")
	case ArtifactTestCommand:
		a.Command = r.required("command", lim.ShortText)
		a.Cwd = r.optional("cwd", lim.TargetFile)
	case ArtifactAPIContract:
		a.SchemaURL = r.url("schema_url", r.optional("schema_url", lim.ShortText))
		a.Inline = r.inline("inline", lim.Diff)
	case ArtifactLink:
		a.URL = r.url("url", r.required("url", lim.ShortText))
		a.Title = r.optional("title", lim.Reason)
	default:
		return Artifact{}, Invalid(joinField(field, "type"), Quote(a.Type)+" came; accepted are "+
			strings.Join(ArtifactTypes(), ", ")+didYouMean(a.Type, ArtifactTypes())).
			With("accepted", ArtifactTypes())
	}
	r.extras(artifactFields[a.Type], lim)
	if r.err != nil {
		return Artifact{}, r.err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		return Artifact{}, Invalid(field, "is not valid JSON")
	}
	a.Raw = compact.Bytes()
	return a, nil
}

// artifactReader reads fields until the first error, so that the table of types above reads
// like the one of the contract.
type artifactReader struct {
	field  string
	object jsonObject
	err    error
}

func (r *artifactReader) required(key string, maxBytes int) string {
	if r.err != nil {
		return ""
	}
	var s string
	s, r.err = r.object.text(r.field, key, maxBytes)
	return s
}

func (r *artifactReader) optional(key string, maxBytes int) string {
	if r.err != nil || r.object.absent(key) {
		return ""
	}
	// An empty title is no title; only what is required must say something.
	if string(bytes.TrimSpace(r.object[key])) == `""` {
		return ""
	}
	return r.required(key, maxBytes)
}

func (r *artifactReader) url(key, s string) string {
	if r.err != nil || s == "" {
		return s
	}
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Hostname() == "" {
		r.err = Invalid(joinField(r.field, key), Quote(s)+" came, an absolute http or https URL is accepted")
	}
	return s
}

func (r *artifactReader) lines(key string) []int64 {
	if r.err != nil || r.object.absent(key) {
		return nil
	}
	var items []json.RawMessage
	refused := Invalid(joinField(r.field, key), "accepted is [from, to], two integers from 0 on")
	if json.Unmarshal(r.object[key], &items) != nil || len(items) != 2 {
		r.err = refused
		return nil
	}
	lines := make([]int64, len(items))
	for i, item := range items {
		n, ok := parseInteger(item)
		if !ok || n < 0 {
			r.err = refused
			return nil
		}
		lines[i] = n
	}
	return lines
}

func (r *artifactReader) inline(key string, maxBytes int) json.RawMessage {
	if r.err != nil || r.object.absent(key) {
		return nil
	}
	r.err = CheckRawJSON(joinField(r.field, key), r.object[key], maxBytes, 0)
	return r.object[key]
}

func (r *artifactReader) extras(known []string, lim Limits) {
	if r.err != nil {
		return
	}
	size := 0
	for key, value := range r.object {
		if !slices.Contains(known, key) {
			size += len(key) + len(value)
		}
	}
	if over(size, lim.Metadata) {
		r.err = TooLarge(r.field, size, lim.Metadata, "bytes of extra fields")
	}
}

// ProposedAction is what a propose_action handoff asks for (contracts: teammates). The diff
// is kept as it came: clients of the original send any text.
type ProposedAction struct {
	Description   string   `json:"description"`
	TargetFiles   []string `json:"target_files"`
	Rationale     string   `json:"rationale"`
	SuggestedDiff string   `json:"suggested_diff,omitempty"`
}

// Check refuses an action that lacks a description, a rationale or a target_files list
// (which may be empty: not every action touches files), a path that [CheckTargetFiles]
// refuses, and whatever is above its limit. Errors name proposed_action.….
func (p *ProposedAction) Check(lim Limits) error {
	const field = "proposed_action"
	for _, text := range []struct {
		key, value string
		required   bool
		maxBytes   int
	}{
		{"description", p.Description, true, lim.ShortText},
		{"rationale", p.Rationale, true, lim.ShortText},
		{"suggested_diff", p.SuggestedDiff, false, lim.Diff},
	} {
		if text.required && strings.TrimSpace(text.value) == "" {
			return Invalid(field+"."+text.key, "nothing came, a non-empty string is accepted")
		}
		if err := CheckText(field+"."+text.key, text.value, text.maxBytes); err != nil {
			return err
		}
	}
	if p.TargetFiles == nil {
		return Invalid(field+".target_files", "nothing came, a list of relative paths is accepted")
	}
	return CheckTargetFiles(field+".target_files", p.TargetFiles, lim)
}

var (
	// RFC 3986, section 4.2: a relative path whose first segment holds a colon is written
	// ./a:b, because a:b is a URI.
	uriPattern   = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)
	drivePattern = regexp.MustCompile(`^[A-Za-z]:`)
)

// CheckTargetFiles refuses paths that could leave the project they are meant for: absolute
// ones (POSIX, Windows drive, backslash root), URIs, and any ".." segment, whichever slash
// separates. Sizes above the limits are content_too_large.
func CheckTargetFiles(field string, files []string, lim Limits) error {
	if over(len(files), lim.TargetFiles) {
		return TooLarge(field, len(files), lim.TargetFiles, "files")
	}
	for i, file := range files {
		at := itemField(field, i)
		if err := CheckText(at, file, lim.TargetFile); err != nil {
			return err
		}
		clean := cleanFile(file)
		switch {
		case strings.TrimSpace(file) == "" || clean == ".":
			return Invalid(at, Quote(file)+" came, the path of a file is accepted")
		case strings.ContainsFunc(file, unicode.IsControl):
			return Invalid(at, Quote(file)+" came; control characters are not accepted in a path")
		case strings.HasPrefix(clean, "/") || drivePattern.MatchString(clean) || uriPattern.MatchString(file):
			return Invalid(at, Quote(file)+" came, a path relative to the project is accepted")
		case slices.Contains(strings.Split(slashed(file), "/"), ".."):
			return Invalid(at, Quote(file)+` came; ".." is not accepted in a path`)
		}
	}
	return nil
}

// CheckDiffFiles returns those of the parsed file names of a diff that are not among the
// allowed ones, each once, in order, without its a/ or b/ and cleaned. An empty result means
// that the diff touches allowed files only. Empty names and /dev/null stand for no file.
//
// Names match with the prefix or without it, because a parser strips it from a git header
// and leaves it in a plain one.
func CheckDiffFiles(parsed, allowed []string) []string {
	permitted := make(map[string]bool, len(allowed))
	for _, file := range allowed {
		permitted[cleanFile(file)] = true
	}
	var others []string
	for _, name := range parsed {
		if name == "" || name == "/dev/null" {
			continue
		}
		clean := cleanFile(name)
		bare := clean
		if strings.HasPrefix(clean, "a/") || strings.HasPrefix(clean, "b/") {
			bare = clean[2:]
		}
		if !permitted[clean] && !permitted[bare] && !slices.Contains(others, bare) {
			others = append(others, bare)
		}
	}
	return others
}

func slashed(file string) string { return strings.ReplaceAll(file, `\`, "/") }

// cleanFile is the form in which paths of files compare.
func cleanFile(file string) string { return path.Clean(slashed(file)) }
