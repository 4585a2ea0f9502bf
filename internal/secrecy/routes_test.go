package secrecy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Which routes there are is read from the sources: every pattern that is given to a mux. A GET whose
// variables are known is asked by itself; every other route needs an entry, or the test fails.

// serving are the packages that may register routes.
var serving = []string{"internal/httpserver", "internal/owner", "internal/restapi", "internal/webui"}

// computed are the patterns that are no literals, as they stand in the sources, and where what they
// stand for is found: in the literals around them, or here.
var computed = map[string][]string{
	"p":             nil, // of a list of literals
	"path":          {"/mcp", "/mcp/team", "/mcp/pool", "/mcp/desk"},
	`path + "/{$}"`: {"/mcp/", "/mcp/team/", "/mcp/pool/", "/mcp/desk/"},
}

var pattern = regexp.MustCompile(`^([A-Z]+ )?/[a-z0-9{$}_/]*$`)

// routes reads the patterns from the sources.
func routes(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	muxes := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(strings.TrimPrefix(path, "../../")))
		serves := slices.Contains(serving, dir)
		tooling := slices.ContainsFunc([]string{"internal/bench", "internal/conformance", "internal/hubtest", "internal/interop", "internal/soak", "interop", "scripts"}, func(p string) bool { return strings.HasPrefix(dir, p) })
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && serves && lit.Kind == token.STRING {
				if s, _ := strconv.Unquote(lit.Value); pattern.MatchString(s) {
					found[s] = true
				}
			}
			call, ok := n.(*ast.CallExpr)
			if !ok || tooling {
				return true
			}
			switch sourceOf(call.Fun) {
			case "http.NewServeMux":
				muxes++
			case "http.Handle", "http.HandleFunc":
				t.Errorf("%s serves more than a mux of its own does", path)
			}
			fun, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sourceOf(fun.X) != "mux" || fun.Sel.Name != "Handle" && fun.Sel.Name != "HandleFunc" {
				return true
			}
			if !serves {
				t.Errorf("%s registers a route: whether it keeps secrets is not known", path)
			}
			if lit, ok := call.Args[0].(*ast.BasicLit); ok {
				if s, _ := strconv.Unquote(lit.Value); !pattern.MatchString(s) {
					t.Errorf("%s: %s is no pattern that this test understands", path, lit.Value)
				}
				return true
			}
			known, ok := computed[sourceOf(call.Args[0])]
			if !ok {
				t.Errorf("%s: %s is a computed pattern; say in computed what it stands for", path, sourceOf(call.Args[0]))
			}
			for _, p := range known {
				found[p] = true
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	list := make([]string, 0, len(found))
	for p := range found {
		list = append(list, p)
	}
	slices.Sort(list)
	if len(list) < 30 || muxes != 6 {
		t.Fatalf("%d routes of %d muxes, which are all to be called mux: %q", len(list), muxes, list)
	}
	return list
}

// sourceOf writes a simple expression as it stands in the source.
func sourceOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.BasicLit:
		return e.Value
	case *ast.SelectorExpr:
		return sourceOf(e.X) + "." + e.Sel.Name
	case *ast.BinaryExpr:
		return sourceOf(e.X) + " " + e.Op.String() + " " + sourceOf(e.Y)
	}
	return "an expression"
}

// posts are the bodies of the routes that take one; $ stands for its path's variables, as in paths.
var posts = map[string]string{
	"POST /operator/agents":                      `{"handle":"new@acme"}`,
	"POST /operator/agents/{handle}/edit":        `{"role":"r"}`,
	"POST /operator/agents/{handle}/block":       `{"handle":"cora@acme"}`,
	"POST /operator/agents/{handle}/unblock":     `{"handle":"cora@acme"}`,
	"POST /operator/agents/{handle}/disable":     `{}`,
	"POST /operator/agents/{handle}/enable":      `{}`,
	"POST /operator/agents/{handle}/keys":        `{"label":"l"}`,
	"POST /operator/agents/{handle}/keys/rotate": `{"label":"l"}`,
	"POST /operator/keys/{id}/revoke":            `{}`,
	"POST /operator/invites":                     `{}`,
	"POST /operator/invites/{jti}/revoke":        `{}`,
	"POST /operator/drafts/{id}/decision":        `{"approve":true}`,
	"POST /operator/catalog/add":                 `{"kind":"capability","names":["paint"]}`,
	"POST /operator/catalog/remove":              `{"kind":"capability","names":["code","paint"]}`,
	"POST /operator/workspaces/alias":            `{"project_root":"/srv/another name","of":"/srv/shop"}`,
	"POST /operator/workspaces/members":          `{"project_root":"/srv/shop"}`,
	"POST /operator/handoffs/{id}/reassign":      `{"to":"lois@acme","reason":"r"}`,
	"POST /operator/handoffs/{id}/cancel":        `{"reason":"r"}`,
	"POST /operator/handoffs/{id}/erase":         `{}`,
	"POST /invites/{jti}/redeem":                 `{"token":"t"}`,
	"POST /operator/agents/{handle}/notify":      `{"off":true}`,
	"POST /operator/businesses":                  `{"slug":"shop"}`,
	"POST /operator/businesses/import":           `{"businesses":[{"slug":"shop"}]}`,
	"POST /operator/businesses/{slug}/edit":      `{"name":"n"}`,
	"POST /operator/deliveries/{id}/resend":      `{}`,
	"POST /operator/continuations/{id}/revoke":   `{}`,
	"POST /operator/signers/rotate":              `{}`,
	"POST /a2a/continue":                         ``,
	"POST /a2a/continue/{token}":                 ``,
	"OPTIONS /a2a/continue":                      ``,
	"OPTIONS /a2a/continue/{token}":              ``,
	"POST /api/v1/continuations/{id}/messages":   `{"body":"b"}`,
	"POST /api/v1/continuations/{id}/complete":   `{"result_summary":"r"}`,
	"POST /h/{token}":                            `act=take`,
	"POST /login":                                `key=hc_live_x`,
	"POST /logout":                               ``,
}

// exempt are the routes that need not keep secrets, or that others call.
var exempt = map[string]string{
	"GET /operator/backup": "it is the database",
	"GET /owner":           "its package knows nothing of the hub", "GET /owner/watch": "the same", "POST /owner/handover": "the same",
	"/mcp": "every tool goes through it", "/mcp/team": "the same tools", "/mcp/pool": "the same tools", "/mcp/desk": "the same tools", "/mcp/desk/": "the same tools",
	"/mcp/": "the same tools", "/mcp/team/": "the same tools", "/mcp/pool/": "the same tools",
}

var variable = regexp.MustCompile(`\{[a-z_]+\}`)

// paths fill the variables of a pattern with whatever there is; nil where one is not known.
func (w *world) paths(p string) []string {
	list := []string{strings.ReplaceAll(p, "{$}", "")}
	for _, name := range variable.FindAllString(p, -1) {
		values := map[string][]string{
			"{handle}": {"clem@acme", "pat@acme", "cora@acme", "dummy@acme"}, "{jti}": {"0192f3a4-0000-7000-8000-000000000000"}, "{slug}": {"shop"}, "{token}": {"0192f3a4", "abcdefghijklmnopqrstuvwxyz234567"}, "{name}": {"style.css", "app.css", "favicon.svg"},
		}[name]
		if name == "{id}" || name == "{thread_id}" {
			for _, o := range w.offers {
				values = append(values, o.id)
			}
		}
		var filled []string
		for _, path := range list {
			for _, v := range values {
				filled = append(filled, strings.Replace(path, name, v, 1))
			}
		}
		list = filled
	}
	return list
}

// visit asks every route, as everyone who can.
func (w *world) visit(change bool) {
	w.t.Helper()
	for _, p := range routes(w.t) {
		method, path, hasMethod := strings.Cut(p, " ")
		if !hasMethod {
			method, path = http.MethodGet, p
		}
		body, covered := posts[p]
		if exempt[p] != "" || (method != http.MethodGet) != change {
			continue
		}
		paths := w.paths(path)
		if method != http.MethodGet && !covered || len(paths) == 0 {
			w.t.Errorf("the route %s is not covered: whether it keeps secrets is not known", p)
			continue
		}
		if change && strings.Contains(p, "{handle}") { // nobody of the cast is to be changed
			paths = []string{strings.Replace(path, "{handle}", "dummy@acme", 1)}
		}
		for _, path := range paths {
			w.walk(method, path, body)
		}
	}
}

// walk asks one address: the operator at the socket, everyone else at the public listener.
func (w *world) walk(method, path, body string) {
	w.t.Helper()
	queries := []string{""}
	switch {
	case strings.HasSuffix(path, "/events"):
		queries = []string{"", "?cursor=0", "?cursor=0&as=stan@acme", "?after_event_seq=0"}
	case strings.HasSuffix(path, "/operator/handoffs"):
		queries = []string{"", "?limit=200", "?status=pending&status=completed", "?door=pool&workspace=/srv/shop"}
	}
	operator := w.cast["operator"]
	for _, q := range queries {
		operator.ask(method+" "+path, operator.request(method, path+q, body))
	}
	if strings.HasPrefix(path, "/operator/") {
		return
	}
	anybody := w.cast["anybody"]
	r := anybody.request(method, path, body)
	if strings.HasPrefix(path, "/log") && body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	anybody.ask(method+" "+path, r)
	if method != http.MethodGet {
		return
	}
	for _, a := range w.everyone() {
		a.page(path)
		for _, q := range queries {
			a.ask("GET "+path+" with a key", a.request(method, path+q, ""))
		}
	}
}

func TestNoPackageEmitsTracesUnseen(t *testing.T) {
	t.Parallel()
	err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, emitter := range []string{`"go.opentelemetry.io/otel"`, `"go.opentelemetry.io/otel/sdk`, `"go.opentelemetry.io/otel/exporters`, `"go.opentelemetry.io/contrib`, `"expvar"`, `"net/http/pprof"`, `"runtime/trace"`} {
			if strings.Contains(string(b), "\t"+emitter) {
				t.Errorf("%s imports %s: record in this test what it emits, and search it", path, emitter)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
