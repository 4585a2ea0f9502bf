package hubtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
)

// Cluster is a throw-away PostgreSQL server made from the installed binaries. It listens on a
// socket in its own folder only, so any number of them run side by side.
type Cluster struct {
	dir     string
	bin     string
	durable bool
	server  *exec.Cmd
	exited  chan error
	cred    *syscall.Credential
}

// errNoPostgres says that the machine has no PostgreSQL server binaries.
var errNoPostgres = errors.New("no PostgreSQL server binaries (pg_config --bindir)")

// PostgresBin is the folder of the server binaries; an error when there are none.
func PostgresBin() (string, error) {
	out, err := exec.CommandContext(context.Background(), "pg_config", "--bindir").Output()
	if err == nil {
		dir := strings.TrimSpace(string(out))
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", errNoPostgres
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// StartCluster makes a cluster and starts its server. A durable one syncs to disk as a
// production server does; the others do not, for speed.
func StartCluster(durable bool) (*Cluster, error) {
	bin, err := PostgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("/tmp", "handclasp-pg-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, bin: bin, durable: durable}
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		c.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	initdb := c.command("initdb", "-D", c.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("initdb: %w\n%s", err, out), os.RemoveAll(dir))
	}
	if err := c.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return c, nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	// Ctrl-C in a terminal goes to the tests, which then stop the server themselves.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.cred, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	return cmd
}

// Start starts the server and waits until it answers.
func (c *Cluster) Start() error {
	args := []string{"-D", c.data(), "-k", c.dir, "-c", "listen_addresses=", "-c", "max_connections=200", "-c", "log_min_messages=fatal"}
	if !c.durable {
		args = append(args, "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off")
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	c.server = c.command("postgres", args...)
	c.server.Stdout, c.server.Stderr = log, log
	c.exited = make(chan error, 1)
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that started the process, so keep that thread.
		runtime.LockOSThread()
		started <- c.server.Start()
		c.exited <- c.server.Wait()
	}()
	if err := <-started; err != nil {
		return err
	}
	db, err := sql.Open("pgx", c.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if err = db.PingContext(ctx); err == nil {
			return nil
		}
		select {
		case exit := <-c.exited:
			text, _ := os.ReadFile(filepath.Join(c.dir, "log"))
			return fmt.Errorf("postgres ended at its start: %w\n%s", exit, text)
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// Stop ends the server: SIGQUIT is an immediate stop, as of a crash; SIGINT a fast one.
func (c *Cluster) Stop(sig syscall.Signal) error {
	if c.server == nil {
		return nil
	}
	if err := c.server.Process.Signal(sig); err != nil {
		return err
	}
	<-c.exited
	c.server = nil
	return nil
}

// Close stops the server and removes everything.
func (c *Cluster) Close() error {
	return errors.Join(c.Stop(syscall.SIGQUIT), os.RemoveAll(c.dir))
}

// URL is the address of a database of the cluster.
func (c *Cluster) URL(database string) string {
	return "postgres:///" + database + "?" + url.Values{"host": {c.dir}, "user": {"postgres"}, "sslmode": {"disable"}}.Encode()
}

// CreateDatabase makes a database, as a copy of template unless that is empty.
func (c *Cluster) CreateDatabase(ctx context.Context, name, template string) error {
	db, err := sql.Open("pgx", c.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	q := "CREATE DATABASE " + name
	if template != "" {
		q += " TEMPLATE " + template
	}
	_, err = db.ExecContext(ctx, q)
	return err
}

// DropDatabase removes a database and whoever is connected to it.
func (c *Cluster) DropDatabase(ctx context.Context, name string) error {
	db, err := sql.Open("pgx", c.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(ctx, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
	return err
}

// shared is the cluster of this test binary.
var shared struct {
	once sync.Once
	c    *Cluster
	err  error
	mu   sync.Mutex // CREATE DATABASE … TEMPLATE wants the template to itself
}

// Main runs the tests of a package that uses hubtest and leaves nothing behind. Call it from
// TestMain: os.Exit(hubtest.Main(m)).
func Main(m *testing.M) int {
	code := m.Run()
	if shared.c != nil {
		if err := shared.c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "hubtest: the PostgreSQL cluster was not removed:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Require skips the test where a program it needs is missing, unless HANDCLASP_REQUIRE names
// it: then its absence is a failure.
func Require(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	for _, must := range strings.Split(os.Getenv("HANDCLASP_REQUIRE"), ",") {
		if strings.TrimSpace(must) == what {
			t.Fatalf("HANDCLASP_REQUIRE names %s: %v", what, err)
		}
	}
	t.Skipf("needs %s: %v", what, err)
}

// PostgresURL gives the test an empty database of its own on the shared cluster.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return postgresURL(t, "")
}

func sharedCluster(t testing.TB) *Cluster {
	t.Helper()
	shared.once.Do(func() { shared.c, shared.err = StartCluster(false) })
	if errors.Is(shared.err, errNoPostgres) {
		Require(t, "postgres", shared.err)
	}
	if shared.err != nil {
		t.Fatalf("start PostgreSQL: %v", shared.err)
	}
	return shared.c
}

func postgresURL(t testing.TB, template string) string {
	t.Helper()
	c := sharedCluster(t)
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	name := "t_" + hex.EncodeToString(b)
	shared.mu.Lock()
	err := c.CreateDatabase(context.Background(), name, template)
	shared.mu.Unlock()
	if err != nil {
		t.Fatalf("create database: %v", err)
	}
	t.Cleanup(func() {
		if err := c.DropDatabase(context.Background(), name); err != nil {
			t.Errorf("drop database: %v", err)
		}
	})
	return c.URL(name)
}
