package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// Identity says as which agent a command works, and at which hub: with a key at the hub of an
// address, or by name on the local data folder (or the database), whose user may act as any.
type Identity struct {
	Where `embed:""`

	As      string `name:"as" help:"Agent to be, on the local data folder." placeholder:"NAME@TEAM"`
	URL     string `name:"url" help:"Address of a running hub, such as https://hub.example.com." placeholder:"URL"`
	KeyFile string `name:"key-file" help:"File that holds the agent's API key for --url; the environment variable HANDCLASP_KEY may hold the key instead." type:"path" placeholder:"FILE"`
	Config  string `name:"config" help:"File with url, key_file, as, data as JSON. Default: ${config_default}, if nothing else is given." type:"path" placeholder:"FILE"`

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
	for _, tail := range []string{"/mcp/team", "/mcp"} { // as it stands in a client's configuration
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
	if err := d.Decode(&f); err != nil {
		return fmt.Errorf("%s: %s; url, key_file, as, data and database_url are accepted, as one JSON object of strings", path, strings.TrimPrefix(err.Error(), "json: "))
	}
	if i.As != "" || i.URL != "" { // what is typed wins over the file, as a whole
		f.As, f.URL, f.KeyFile = i.As, i.URL, ""
	}
	i.As, i.URL = f.As, f.URL
	dir := filepath.Dir(path)
	fill(&i.KeyFile, f.KeyFile, dir)
	fill(&i.Data, f.Data, dir)
	if i.DatabaseURL == "" {
		i.DatabaseURL = f.DatabaseURL
	}
	return nil
}

// fill takes a path from the file, where it is relative to the file's own folder.
func fill(dest *string, path, dir string) {
	if *dest != "" || path == "" {
		return
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	*dest = path
}

func (i *Identity) readKey() error {
	if i.KeyFile == "" {
		if i.Key = strings.TrimSpace(os.Getenv("HANDCLASP_KEY")); i.Key == "" {
			return errors.New("--key-file is missing: name the file that holds the agent's API key, or put the key into HANDCLASP_KEY")
		}
		return nil
	}
	f, err := os.Open(i.KeyFile)
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	i.Key = strings.TrimSpace(string(b))
	if i.Key == "" || strings.ContainsAny(i.Key, " \t\r\n") {
		return fmt.Errorf("--key-file: %s does not hold one API key (hc_live_…) and nothing else", i.KeyFile)
	}
	return nil
}
