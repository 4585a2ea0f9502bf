package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	webTimeout     = 15 * time.Second
	connectTimeout = 5 * time.Second // to one of several addresses
	mostHeaders    = 16 << 10
	mostAnswer     = 64 << 10
)

// Outside is how the hub reaches addresses that others gave it. A name is resolved once, all that
// it resolves to is checked, and what was checked is dialled, so that a name cannot lead to one
// address for the check and to another for the request.
type Outside struct {
	// Allow lists the networks that the operator lets others point at although they are refused
	// to everybody else.
	Allow []netip.Prefix
	// RootCAs is who signs certificates; nil is whom the system trusts.
	RootCAs *x509.CertPool
	// Timeout bounds a request with its answer; 0 is 15 seconds.
	Timeout time.Duration

	resolve func(ctx context.Context, host string) ([]netip.Addr, error) // nil is the system's way
}

// Client returns a client without proxies, redirects, cookies or connections that are kept. An
// answer that redirects is handed back as it came, but for where to. Give it only what [CheckURL] accepts.
func (o Outside) Client() *http.Client {
	timeout := o.Timeout
	if timeout == 0 {
		timeout = webTimeout
	}
	return &http.Client{
		Timeout: timeout,
		Transport: noRedirect{&http.Transport{
			Proxy:                  nil, // one from the environment would resolve the name anew
			DialContext:            o.dial,
			TLSClientConfig:        &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    timeout,
			DisableKeepAlives:      true, // on a used connection the transport may send twice by itself
			DisableCompression:     true,
			MaxResponseHeaderBytes: mostHeaders,
		}},
	}
}

// noRedirect takes the destination out of an answer that redirects. Without it the client has none
// to follow, and none to fail at reading.
type noRedirect struct{ http.RoundTripper }

func (t noRedirect) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if resp != nil {
		resp.Header.Del("Location")
	}
	return resp, err
}

// CheckURL reads an address that somebody gave: http or https, a host, and no user in it. Which
// addresses the host has is checked when it is dialled. Errors do not repeat the address, which may
// hold a secret.
func CheckURL(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("the address cannot be read as a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the address must begin with http:// or https://")
	case u.User != nil:
		return nil, errors.New("the address must not hold a user or a password")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the address names no host")
	case !plainURL(address, u):
		return nil, errors.New("the address holds characters that cannot be seen, or no port from 1 to 65535")
	}
	return u, nil
}

func plainURL(address string, u *url.URL) bool {
	for _, r := range address {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.Atoi(u.Port())
	return err == nil && port > 0 && port < 1<<16
}

// AddressError says that a rule forbids an address. Trying again does not help until somebody
// changes the address, or the operator allows its network.
type AddressError struct {
	Addr netip.Addr
	// Rule is what the address is, such as "a loopback address".
	Rule string
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("%v is %s, which the hub does not dial for others unless the operator allows its network", e.Addr, e.Rule)
}

// Examine returns the [AddressError] with which a request to a URL would fail as things stand. A name that
// does not resolve now may do so later, so that is no error.
func (o Outside) Examine(ctx context.Context, address string) error {
	u, err := CheckURL(address)
	if err != nil {
		return err
	}
	var forbidden *AddressError
	if _, err := o.addresses(ctx, u.Hostname()); errors.As(err, &forbidden) {
		return forbidden
	}
	return nil
}

// addresses resolves a host and checks all that it resolves to.
func (o Outside) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	resolve := o.resolve
	if resolve == nil {
		resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	addrs, err := resolve(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("resolve the host: %w", err)
	}
	// One forbidden address condemns the name: an honest one has no use for it.
	for _, addr := range addrs {
		if err := o.Check(addr); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

func (o Outside) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	addrs, err := o.addresses(ctx, host)
	if err != nil {
		return nil, err
	}
	err = errors.New("the host has no address")
	for _, addr := range addrs {
		var conn net.Conn
		dialer := net.Dialer{Timeout: connectTimeout}
		if conn, err = dialer.DialContext(ctx, network, net.JoinHostPort(addr.Unmap().String(), port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// Check returns an [AddressError] if addr must not be dialled for others.
func (o Outside) Check(addr netip.Addr) error {
	addr = addr.WithZone("").Unmap()
	for _, inner := range carried(addr) {
		// To allow a translator's network is not to allow what lies behind it.
		if err := o.Check(inner); err != nil {
			return err
		}
	}
	for _, p := range o.Allow {
		if p.Contains(addr) {
			return nil
		}
	}
	if rule := forbidden(addr); rule != "" {
		return &AddressError{addr, rule}
	}
	return nil
}

// forbidden says which rule refuses addr, or nothing.
func forbidden(addr netip.Addr) string {
	if !addr.IsValid() {
		return "no address"
	}
	for _, r := range rules {
		if r.network.Contains(addr) {
			return r.is
		}
	}
	if addr.Is6() && !global.Contains(addr) {
		return "outside of the networks given out for IPv6"
	}
	return ""
}

// global is what IANA gives out of IPv6.
var global = netip.MustParsePrefix("2000::/3")

// rules are tried in order, the narrower before the wider. The registries behind them are IANA's
// special-purpose address registries (RFC 6890).
var rules = []struct {
	network netip.Prefix
	is      string
}{
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud's metadata address"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "a cloud's metadata address"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "an address of a provider's inner network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "an address kept for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "an address for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "an address for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "a broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("::/128"), "an unspecified address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("::/96"), "an IPv4 address in a form of IPv6"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an IPv4 address in a form of IPv6"},
	{netip.MustParsePrefix("64:ff9b::/96"), "an address of a NAT64 translator"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "an address of a NAT64 translator"},
	{netip.MustParsePrefix("100::/64"), "an address for discarding"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001::/23"), "an address kept for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "an address for documentation"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("3fff::/20"), "an address for documentation"},
	{netip.MustParsePrefix("fc00::/7"), "a unique-local address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

// carried are the IPv4 addresses that a translator or a tunnel would take out of addr.
func carried(addr netip.Addr) []netip.Addr {
	if !addr.Is6() {
		return nil
	}
	b := addr.As16()
	v4 := func(at int) netip.Addr { return netip.AddrFrom4([4]byte(b[at : at+4])) }
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(addr):
		return []netip.Addr{v4(12)}
	case netip.MustParsePrefix("64:ff9b:1::/48").Contains(addr):
		// Its operator chose how many bits come before the address (RFC 6052, 2.2): behind the address
		// all is zero, and the ninth byte always.
		switch {
		case zero(b[11:]):
			return []netip.Addr{netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]})}
		case zero(b[12:]):
			return []netip.Addr{netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]})}
		case zero(b[13:]):
			return []netip.Addr{v4(9)}
		}
		return []netip.Addr{v4(12)}
	case netip.MustParsePrefix("2002::/16").Contains(addr):
		return []netip.Addr{v4(2)}
	case netip.MustParsePrefix("2001::/32").Contains(addr): // the server, and the client inverted
		return []netip.Addr{v4(4), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	}
	return nil
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// discard reads what is left of an answer, so that the other side can end it in peace, up to what
// an answer to a notification may be.
func discard(body io.Reader) { _, _ = io.Copy(io.Discard, io.LimitReader(body, mostAnswer)) }
