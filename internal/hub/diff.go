package hub

import (
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"handclasp/internal/handoff"
)

// diffFiles parses a unified diff and names the files it touches, without a/ and b/. ok is
// false when it does not parse or holds no file; the parser takes prose for a diff of no
// files, so the second is checked too.
func diffFiles(diff string) (files []string, ok bool) {
	parsed, _, err := gitdiff.Parse(strings.NewReader(diff))
	if err != nil || len(parsed) == 0 {
		return nil, false
	}
	seen := map[string]bool{"": true}
	for _, f := range parsed {
		for _, name := range []string{f.OldName, f.NewName} {
			if !seen[name] {
				seen[name] = true
				files = append(files, name)
			}
		}
	}
	return files, len(files) > 0
}

// diffWarning says what is odd about a diff that is kept as it is.
func diffWarning(diff string, targetFiles []string) string {
	files, ok := diffFiles(diff)
	if !ok {
		return "suggested_diff does not parse as a unified diff; it was kept as it is, and the receiver may have to draft its own"
	}
	if outside := handoff.CheckDiffFiles(files, targetFiles); len(outside) > 0 {
		return "suggested_diff touches files that target_files does not name: " + quoteList(outside)
	}
	return ""
}

func quoteList(list []string) string {
	out := make([]string, 0, len(list))
	for i, s := range list {
		if i == 5 {
			out = append(out, "…")
			break
		}
		out = append(out, handoff.Quote(s))
	}
	return strings.Join(out, ", ")
}
