package config

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// Identity says as which agent a command works, and at which hub: with a key at the hub of an
// address, or by name on the local data folder (or the database), whose user may act as any.
type Identity struct {
	Where `embed:""`

	As      string `name:"as" help:"Agent to be, on the local data folder." placeholder:"NAME@TEAM"`
	URL     string `name:"url" help:"Address of a running hub, such as https://hub.example.com." placeholder:"URL"`
	KeyFile string `name:"key-file" help:"File that holds the agent's API key for --url; the environment variable HANDCLASP_KEY may hold the key instead." type:"path" placeholder:"FILE"`
	Config  string `name:"config" help:"JSON file with url and key_file, or as and data or database_url. Default: ${config_default}, if nothing else is given." type:"path" placeholder:"FILE"`

	// Key is what HANDCLASP_KEY or the file holds. A flag would show it in the list of processes.
	Key string `kong:"-"`
}

// identityFile is the content of a configuration file.
type identityFile struct {
	URL         string `json:"url"`
	KeyFile     string `json:"key_file"`
	As          string `json:"as"`
	Data        string `json:"data"`
	DatabaseURL string `json:"database_url"`
}

// DefaultConfig is the user's configuration file (XDG Base Directory).
func DefaultConfig() string {
	base := os.Getenv("XDG_CONFIG_HOME")
	if base == "" || !filepath.IsAbs(base) {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "handclasp", "config.json")
}

// Resolve reads the files that are named, and refuses what contradicts itself. The error is a
// sentence for whoever typed the command.
func (i *Identity) Resolve() error {
	if err := i.fromFile(); err != nil {
		return err
	}
	if i.URL == "" {
		return i.local()
	}
	switch {
	case i.As != "":
		return errors.New("--as and --url exclude each other: at a hub you are who your key says (--key-file), on the local data folder who --as names")
	case i.DatabaseURL != "" || i.Data != "":
		return errors.New("--url excludes --data and --database-url: name the running hub, or the place where its data lies")
	}
	u, err := url.Parse(i.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--url: the http or https address of a hub is accepted, such as https://hub.example.com, without name, password or query (what came is not repeated, it may hold a secret)")
	}
	i.URL = strings.TrimRight(i.URL, "/")
	for _, tail := range []string{"/mcp/team", "/mcp/pool", "/mcp"} { // as it stands in a client's configuration
		i.URL = strings.TrimSuffix(i.URL, tail)
	}
	return i.readKey()
}

func (i *Identity) local() error {
	if i.KeyFile != "" {
		return errors.New("--key-file goes with --url: name the hub that the key is for, or leave the key out and use --as on the local data folder")
	}
	if i.As == "" {
		return errors.New("--as is missing: name the agent to be, such as --as frank@acme (handclasp agent list shows them), or a running hub with --url and --key-file")
	}
	if strings.ContainsFunc(i.As, unicode.IsControl) {
		return fmt.Errorf("--as: %q came; name@team is accepted, such as frank@acme", i.As)
	}
	return i.Where.Check()
}

func (i *Identity) fromFile() error {
	path := i.Config
	if path == "" {
		if i.URL != "" || i.As != "" {
			return nil
		}
		path = DefaultConfig()
	}
	b, err := os.ReadFile(path)
	if i.Config == "" && err != nil {
		return nil //nolint:nilerr // nobody named the default file
	}
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	var f identityFile
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	err = d.Decode(&f)
	if _, end := d.Token(); err == nil && !errors.Is(end, io.EOF) {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return fmt.Errorf("%s: %s; url, key_file, as, data and database_url are accepted, as one JSON object of strings", path, strings.TrimPrefix(err.Error(), "json: "))
	}
	i.fill(f, filepath.Dir(path))
	return nil
}

// fill takes from the file what was not typed. Who is typed replaces who the file says, and a hub
// that is typed the place that it names.
func (i *Identity) fill(f identityFile, dir string) {
	if i.As != "" || i.URL != "" {
		f.As, f.URL, f.KeyFile = i.As, i.URL, ""
	}
	if i.URL != "" || i.Data != "" || i.DatabaseURL != "" {
		f.Data, f.DatabaseURL = i.Data, i.DatabaseURL
	}
	i.As, i.URL, i.DatabaseURL = f.As, f.URL, f.DatabaseURL
	i.KeyFile = cmp.Or(i.KeyFile, within(dir, f.KeyFile))
	i.Data = cmp.Or(i.Data, within(dir, f.Data))
}

// within is a path of the file, which is relative to the file's own folder.
func within(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

func (i *Identity) readKey() error {
	key, from := os.Getenv("HANDCLASP_KEY"), "HANDCLASP_KEY"
	if i.KeyFile != "" {
		from = "--key-file: " + i.KeyFile
		f, err := os.Open(i.KeyFile)
		if err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
		if err != nil {
			return fmt.Errorf("--key-file: %w", err)
		}
		key = string(b)
	} else if strings.TrimSpace(key) == "" {
		return errors.New("--key-file is missing: name the file that holds the agent's API key, or put the key into HANDCLASP_KEY")
	}
	i.Key = strings.TrimSpace(key)
	odd := func(r rune) bool { return r <= ' ' || r > '~' }
	if i.Key == "" || len(key) == maxKeyFile || strings.ContainsFunc(i.Key, odd) {
		return fmt.Errorf("%s does not hold one API key (hc_live_…) and nothing else, such as the word Bearer or a second line", from)
	}
	return nil
}

// maxKeyFile is far more than a key has.
const maxKeyFile = 4 << 10
