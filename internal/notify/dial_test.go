package notify

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
)

func TestAddressesOfTheInsideAreNotDialledForOthers(t *testing.T) {
	t.Parallel()
	for addr, rule := range map[string]string{
		"127.0.0.1": "loopback", "127.8.9.1": "loopback", "::1": "loopback", "0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"10.1.2.3": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"169.254.169.254": "metadata", "fd00:ec2::254": "metadata", "169.254.1.1": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"fc00::1": "unique-local", "fd12::1": "unique-local", "100.64.0.1": "provider", "100.127.255.255": "provider",
		"224.0.0.1": "multicast", "239.1.1.1": "multicast", "ff02::1": "multicast", "255.255.255.255": "broadcast", "240.0.0.1": "reserved",
		"192.0.0.8": "protocols", "198.18.0.1": "benchmarks", "198.19.255.255": "benchmarks",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private", "::ffff:169.254.169.254": "metadata",
		"::127.0.0.1": "form of IPv6", "::ffff:0:127.0.0.1": "form of IPv6",
		"64:ff9b::127.0.0.1": "loopback", "64:ff9b::10.0.0.1": "private", "64:ff9b::8.8.8.8": "NAT64", "64:ff9b:1::10.0.0.1": "private", "64:ff9b:1:0a00:0:100::": "private",
		"64:ff9b:1::8.8.8.8": "NAT64", "2002:7f00:1::1": "loopback", "2002:a9fe:a9fe::": "metadata", "2002:808:808::1": "6to4",
		"2001:0:808:808::f7f7:f7f7": "Teredo", "2001:0:808:808::80ff:fffe": "loopback", "2001:0:7f00:1::f7f7:f7f7": "loopback",
		"100::1": "discarding", "fec0::1": "site-local", "4000::1": "outside", "5f00::1": "outside", "192.88.99.1": "6to4",
	} {
		var refusal *AddressError
		err := Outside{}.Check(netip.MustParseAddr(addr))
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Rule, rule) {
			t.Errorf("%s: %v, want a rule with %q", addr, err, rule)
		}
	}
	for _, addr := range []string{"8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1", "192.0.1.1", "198.20.0.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"} {
		if err := (Outside{}).Check(netip.MustParseAddr(addr)); err != nil {
			t.Errorf("%s: %v", addr, err)
		}
	}
	if (Outside{}).Check(netip.Addr{}) == nil {
		t.Error("no address at all may be dialled")
	}
}

func TestTheOperatorAllowsNetworksOneByOne(t *testing.T) {
	t.Parallel()
	o := Outside{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("fd12::/16")}}
	for addr, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "127.0.0.1": false, "fd12::1": true, "fd13::1": false,
		"64:ff9b::8.8.8.8": true, "64:ff9b::127.0.0.1": false, "64:ff9b::10.1.0.1": true, "2002:a01:203::": false,
	} {
		if err := o.Check(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("%s: %v, want allowed %v", addr, err, allowed)
		}
	}
}

func TestAnAddressOfAnotherKindIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, address := range []string{
		"", "x", "ftp://a.example", "file:///etc/passwd", "https://user:T0PS3CR3T@a.example/", "https://user@a.example", "https:///x", "https:a.example",
		"http://a b/", "http://%zz/T0PS3CR3T", "//a.example/", "javascript:alert(1)", "http://:80/",
	} {
		if _, err := CheckURL(address); err == nil || strings.Contains(err.Error(), "T0PS3CR3T") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{"http://a.example:8080/x?y", "https://[2606:4700::1]/", "HTTPS://A.example"} {
		if _, err := CheckURL(address); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// loopback lets a test's own servers be dialled.
func loopback() Outside {
	_, roots := authority()
	return Outside{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, RootCAs: roots}
}

func get(t *testing.T, o Outside, address string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := o.Client().Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	discard(resp.Body)
	return resp.StatusCode, nil
}

func TestANameIsResolvedOnceAndWhatWasCheckedIsDialled(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	var lookups atomic.Int32
	o := loopback()
	// After the first time the name leads to where nobody may go.
	o.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host != "inbox.example" {
			t.Errorf("%q is looked up", host)
		}
		if lookups.Add(1) == 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("169.254.169.254")}, nil
	}
	if code, err := get(t, o, "http://inbox.example:"+port+"/"); err != nil || code != http.StatusOK {
		t.Errorf("%d %v", code, err)
	}
	if n := lookups.Load(); n != 1 {
		t.Errorf("the name was resolved %d times", n)
	}
	var refusal *AddressError
	if _, err := get(t, o, "http://inbox.example:"+port+"/"); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("the second time: %v", err)
	}
}

func TestOneForbiddenAddressCondemnsAName(t *testing.T) {
	t.Parallel()
	o := loopback()
	o.resolve = func(context.Context, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.0.0.1")}, nil
	}
	var refusal *AddressError
	if _, err := get(t, o, "http://inbox.example/"); !errors.As(err, &refusal) || refusal.Addr != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%v", err)
	}
	o.resolve = func(context.Context, string) ([]netip.Addr, error) { return nil, nil }
	if _, err := get(t, o, "http://inbox.example/"); err == nil {
		t.Error("a name without addresses was dialled")
	}
}

func TestLiteralAndOddlyWrittenAddressesAreCheckedToo(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"http://127.0.0.1:1/", "http://[::1]:1/", "http://[::ffff:127.0.0.1]:1/", "http://[fe80::1%25lo]:1/", "http://localhost:1/", "http://0:1/", "http://2130706433:1/", "http://0x7f.1:1/", "http://127.1:1/"} {
		_, err := get(t, Outside{resolve: literal}, address)
		var refusal *AddressError
		if !errors.As(err, &refusal) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// literal resolves as a lenient system does, without a network.
func literal(_ context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed.Store(true)
		}
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	t.Cleanup(server.Close)
	for _, to := range []string{"/elsewhere", "http://169.254.169.254/", "%zz", ""} {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		q := r.URL.Query()
		q.Set("to", to)
		r.URL.RawQuery = q.Encode()
		if code, err := get(t, loopback(), r.URL.String()); err != nil || code != http.StatusTemporaryRedirect {
			t.Errorf("to %q: %d %v", to, code, err)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

// Not parallel: the proxy comes from the environment.
func TestNoProxyOfTheEnvironmentIsAsked(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") }))
	t.Cleanup(proxy.Close)
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	if transport := (Outside{}).Client().Transport.(noRedirect).RoundTripper.(*http.Transport); transport.Proxy != nil {
		t.Error("the transport has a proxy")
	}
	o := Outside{resolve: literal}
	if _, err := get(t, o, "http://inbox.example/"); err == nil {
		t.Error("a loopback address was reached")
	}
}
