package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/owner"
)

// The checks of doctor that need no database.

// flagless matches the variables that are read and set no flag: the key, which a flag would show
// to others, and those of the tests and scripts.
var flagless = regexp.MustCompile(`^HANDCLASP_(KEY|REQUIRE|TOOLS|SOAK_(ROUNDS|PG_ROUNDS|TAGS|SEED))$`)

// environment finds settings that nothing reads.
func (d *doctor) environment() {
	meaningless := meaninglessVariables(d.known)
	for _, name := range meaningless {
		advice := "unset " + name
		if near := d.nearest(name); near != "" {
			advice = fmt.Sprintf("export %s=\"$%s\"; unset %s", near, name, name)
		}
		d.note("environment", warning, advice, "%s is set and means nothing", name)
	}
	if len(meaningless) == 0 {
		d.note("environment", fine, "", "no HANDCLASP_ variable is misspelled")
	}
}

// meaninglessVariables begin with our name, and nothing reads them.
func meaninglessVariables(known map[string]bool) []string {
	var list []string
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "HANDCLASP_") && !known[name] && !flagless.MatchString(name) {
			list = append(list, name)
		}
	}
	return list
}

// nearest is the variable with the same letters in another order, or one letter more or less.
func (d *doctor) nearest(name string) string {
	var known []string
	for k := range d.known {
		known = append(known, k)
	}
	slices.Sort(known)
	best, least := "", 3
	for _, k := range known {
		if n := distance(name, k); n < least {
			best, least = k, n
		}
	}
	return best
}

// distance is the number of letters to add, drop or change (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(row[j]+1, row[j+1]+1, change)
		}
	}
	return row[len(b)]
}

// addresses looks at where the hub listens and how it is reached.
func (d *doctor) addresses() {
	host, port, _ := net.SplitHostPort(d.cfg.Listen) // validated
	ip := net.ParseIP(host)
	if d.cfg.PublicURL == "" && (host == "" || ip != nil && !ip.IsLoopback()) {
		d.note("public-url", fault, "export HANDCLASP_PUBLIC_URL=http://"+net.JoinHostPort("127.0.0.1", port)+", with the name by which others reach this machine instead of 127.0.0.1",
			"--listen %s is for other machines, and without --public-url links and Host checks do not fit them", d.cfg.Listen)
	}
	if strings.HasPrefix(d.cfg.PublicURL, "http://") && !loopback(strings.TrimPrefix(d.cfg.PublicURL, "http://")) {
		d.note("public-url", warning, "put a reverse proxy with TLS in front, and name its https address", "%s is not encrypted: keys travel in the clear", d.cfg.PublicURL)
	}
	l, err := (&net.ListenConfig{}).Listen(d.ctx, "tcp", d.cfg.Listen)
	switch {
	case err == nil:
		_ = l.Close()
		d.note("listen", fine, "", "%s is free", d.cfg.Listen)
	case !errors.Is(err, syscall.EADDRINUSE):
		d.note("listen", fault, "export HANDCLASP_LISTEN=127.0.0.1:7433, or another address of this machine", "%v", err)
	case d.isHub("http://" + d.cfg.Listen):
		d.note("listen", fine, "", "a hub answers at %s", d.cfg.Listen)
	default:
		d.note("listen", fault, "export HANDCLASP_LISTEN="+freeAddress(d.ctx, host)+", or end what listens there", "%s is used by another program", d.cfg.Listen)
	}
}

func freeAddress(ctx context.Context, host string) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "127.0.0.1:7434"
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (d *doctor) isHub(url string) bool {
	ctx, cancel := context.WithTimeout(d.ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct{ Status string }
	return json.NewDecoder(resp.Body).Decode(&body) == nil && (body.Status == "ready" || body.Status == "unavailable")
}

// clientFile looks at the configuration that mcp, inbox and send read.
func (d *doctor) clientFile() {
	path := config.DefaultConfig()
	if _, err := os.Stat(path); err != nil {
		return
	}
	id := config.Identity{Config: path}
	err := id.Resolve()
	switch {
	case err != nil:
		d.note("client-config", fault, "correct "+path, "%v", err)
	case id.KeyFile != "" && openToOthers(id.KeyFile):
		d.note("client-config", warning, "chmod 600 "+shellWords(id.KeyFile), "others of this machine can read the key in %s", id.KeyFile)
	default:
		d.note("client-config", fine, "", "%s", path)
	}
}

func openToOthers(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm()&0o077 != 0
}

// enoughDisk is the room below which a hub should not go on for long.
const enoughDisk = 100 << 20

// folder says whether there is a data folder whose database can be looked at.
func (d *doctor) folder() bool {
	data := d.cfg.Data
	info, err := os.Stat(data)
	switch {
	case errors.Is(err, os.ErrNotExist):
		d.note("data folder", fault, "handclasp agent add me@home --data "+shellWords(data)+" makes it, or name the right one with --data", "%s does not exist", data)
		return false
	case err != nil:
		d.note("data folder", fault, "give yourself the right to enter it", "%v", err)
		return false
	case !info.IsDir():
		d.note("data folder", fault, "name a folder with --data", "%s is not a folder", data)
		return false
	}
	if openToOthers(data) {
		d.note("data folder", fault, "chmod 700 "+shellWords(data), "others of this machine can enter %s, and act as the operator if they can write there", data)
	}
	d.repository()
	d.disk()
	file := databaseFile(data)
	switch _, err := os.Stat(file); {
	case errors.Is(err, os.ErrNotExist):
		d.note("data folder", fault, "handclasp agent add me@home --data "+shellWords(data)+" begins one, or name the right folder with --data", "there is no hub in %s", data)
		return false
	case openToOthers(file):
		d.note("database", fault, "chmod 600 "+shellWords(file), "others of this machine can read %s", file)
	}
	if f, err := os.OpenFile(file, os.O_RDWR, 0); err != nil {
		d.note("database", fault, "give yourself the right: sudo chown -R \"$(id -un)\" "+shellWords(data), "%v", err)
		return false
	} else if err := f.Close(); err != nil {
		return false
	}
	return true
}

func (d *doctor) repository() {
	repo := repositoryOf(d.cfg.Data)
	if repo == "" || exec.CommandContext(d.ctx, "git", "-C", repo, "check-ignore", "--quiet", d.cfg.Data).Run() == nil { //nolint:gosec // git is asked about a path
		return
	}
	rel, err := filepath.Rel(repo, d.cfg.Data)
	if err != nil || rel == "." {
		d.note("data folder", warning, "name another folder with --data", "%s is a git repository, where its database may be committed by mistake", d.cfg.Data)
		return
	}
	d.note("data folder", warning, fmt.Sprintf("echo %s >> %s, or move the folder", shellWords("/"+rel+"/"), shellWords(filepath.Join(repo, ".git", "info", "exclude"))),
		"%s lies inside the git repository %s, where its database may be committed by mistake", d.cfg.Data, repo)
}

func (d *doctor) disk() {
	var st syscall.Statfs_t
	if syscall.Statfs(d.cfg.Data, &st) != nil {
		return
	}
	free := st.Bavail * uint64(st.Bsize) //nolint:gosec // a block size is not negative
	if free < enoughDisk {
		d.note("disk", fault, "make room on the disk of "+d.cfg.Data+", or move the folder to another", "%d MiB are left; a full disk makes every write fail", free>>20)
		return
	}
	d.note("disk", fine, "", "%d MiB are left", free>>20)
}

// owner says whether nobody holds the folder in a way that stands in the way of others.
func (d *doctor) owner() bool {
	own, err := owner.Take(d.cfg.Data)
	var owned owner.OwnedError
	switch {
	case err == nil:
		own.Release()
		d.note("owner", fine, "", "nobody holds the folder; the next command or hub takes it")
		return true
	case !errors.As(err, &owned):
		d.note("owner", fault, "", "%v", err)
		return false
	}
	info, err := owner.Ask(d.ctx, d.cfg.Data)
	switch {
	case err != nil:
		if owned.PID == "" {
			d.note("owner", fault, "find the process with "+shellWords("lsof", filepath.Join(d.cfg.Data, "owner.lock"))+" and end it", "a process holds the folder and does not answer; no call gets through")
			return false
		}
		d.note("owner", fault, "kill -9 "+owned.PID, "process %s holds the folder and does not answer; no call gets through. Nothing that was acknowledged is lost when it is ended", owned.PID)
		return false
	case info.Version != version():
		d.note("owner", warning, "end process "+owned.PID+" and start it anew", "process %s holds the folder and runs version %s, this is %s", owned.PID, info.Version, version())
	default:
		d.note("owner", fine, "", "process %s (%s) holds the folder and answers", owned.PID, info.Kind)
	}
	return true
}
