package handoff

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// maxProjectRoot is the length of a project_root in bytes: PATH_MAX of Linux.
const maxProjectRoot = 4096

var (
	driveRoot = regexp.MustCompile(`^[A-Za-z]:[\\/]`)
	// Two characters at least: a scheme of one letter is a Windows drive.
	uriScheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]+://`)
)

// NormalizeProjectRoot brings a project_root into the form that is shown and the form that
// identifies the workspace (domain: "Workspace identity"). The path is only text: no file is
// looked at, so it may be of any machine, and links are not followed.
//
// Accepted are a POSIX path (/srv/app), a Windows drive path (C:\app or c:/app), a Windows
// share (\\server\share\app) and a URI with an authority or path behind :// . Separators are
// unified (Windows to \), ".", ".." and empty segments are resolved and never climb above
// the root, a drive letter is upper-cased, the text is NFC. The two forms differ for drive
// paths only, whose comparison form is case-folded: a share may be a Linux file system
// (\\wsl$\…), where case tells two projects apart.
//
// Anything else is workspace_unresolved; invalid UTF-8 and NUL are invalid_params, and above
// 4,096 bytes it is content_too_large. Both forms normalise to themselves.
func NormalizeProjectRoot(s string) (display, comparison string, err error) {
	if err := CheckText("project_root", s, maxProjectRoot); err != nil {
		return "", "", err
	}
	if s = norm.NFC.String(s); len(s) > maxProjectRoot { // some letters are longer so
		return "", "", TooLarge("project_root", len(s), maxProjectRoot, "bytes")
	}
	s = withoutDevicePrefix(s)
	switch {
	case strings.HasPrefix(s, "/"):
		display = "/" + strings.Join(resolveSegments(s, "/"), "/")
	case driveRoot.MatchString(s):
		display = strings.ToUpper(s[:1]) + `:\` + strings.Join(resolveSegments(s[3:], `\/`), `\`)
		return display, foldCase(display), nil
	case strings.HasPrefix(s, `\\`):
		display = normalizeShare(s)
	case uriScheme.MatchString(s):
		return normalizeURI(s)
	}
	if display == "" {
		return "", "", unresolved(Quote(s) + " came")
	}
	return display, display, nil
}

// WorkspaceID is the identity of a workspace: the first 32 hexadecimal digits of the SHA-256
// of the comparison form that [NormalizeProjectRoot] gives.
func WorkspaceID(comparison string) string {
	sum := sha256.Sum256([]byte(comparison))
	return hex.EncodeToString(sum[:])[:32]
}

func unresolved(what string) *Error {
	return Refuse(CodeWorkspaceUnresolved,
		"project_root: "+what+`; accepted are an absolute path (/srv/app, C:\app, \\server\share\app) or a URI (git+https://host/org/repo)`,
		"Pass the absolute path of the project's root as it is on your machine, or the URI of its repository.").
		With("field", "project_root")
}

// withoutDevicePrefix turns \\?\C:\app and \\?\UNC\server\share, which Windows programs
// write for long paths, into the ordinary spelling of the same place.
func withoutDevicePrefix(s string) string {
	rest, long := strings.CutPrefix(s, `\\?\`)
	switch {
	case long && driveRoot.MatchString(rest):
		return rest
	case long && len(rest) >= 4 && strings.EqualFold(rest[:4], `UNC\`):
		return `\\` + rest[4:]
	}
	return s
}

// resolveSegments splits p at any of the separators and resolves "." and ".." lexically.
func resolveSegments(p, separators string) []string {
	var segments []string
	for _, segment := range splitSegments(p, separators) {
		switch segment {
		case ".":
		case "..":
			segments = segments[:max(0, len(segments)-1)]
		default:
			segments = append(segments, segment)
		}
	}
	return segments
}

func splitSegments(p, separators string) []string {
	return strings.FieldsFunc(p, func(r rune) bool { return strings.ContainsRune(separators, r) })
}

// normalizeShare gives "" for what names no share. ".." never climbs above the share, which
// is the root of the path.
func normalizeShare(s string) string {
	segments := splitSegments(s, `\/`)
	if len(segments) < 2 || slices.ContainsFunc(segments[:2], isNoShareName) {
		return ""
	}
	below := resolveSegments(strings.Join(segments[2:], `\`), `\`)
	return `\\` + strings.Join(append(segments[:2:2], below...), `\`)
}

// isNoShareName finds \\.\ and \\?\ devices and relative segments.
func isNoShareName(segment string) bool {
	return segment == "." || segment == ".." || segment == "?"
}

// normalizeURI resolves the path of a URI and leaves scheme, authority, query and fragment
// as they are: only drive paths are compared without case.
func normalizeURI(s string) (display, comparison string, err error) {
	scheme, rest, _ := strings.Cut(s, "://")
	tail := ""
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest, tail = rest[:i], rest[i:]
	}
	authority, p, _ := strings.Cut(rest, "/")
	// A workspace is shown to everybody who uses it, and a token in its name would be too.
	if user, _, ok := strings.Cut(authority, "@"); ok && strings.Contains(user, ":") {
		return "", "", unresolved("a URI with a password came")
	}
	segments := resolveSegments(p, "/")
	if authority == "" && len(segments) == 0 {
		return "", "", unresolved(Quote(s) + " came")
	}
	display = scheme + "://" + authority
	if len(segments) > 0 {
		display += "/" + strings.Join(segments, "/")
	}
	display += tail
	return display, display, nil
}

// foldCase is simple Unicode case folding: one rune for one, as Windows file systems
// compare names. Full folding would make "ß" and "ss" one project.
func foldCase(s string) string {
	return norm.NFC.String(strings.Map(func(r rune) rune {
		if unicode.SimpleFold(r) == r {
			return r // dotless and dotted i have a lower case, but do not fold
		}
		return unicode.ToLower(unicode.ToUpper(r))
	}, s))
}
