package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// SessionLifetime is how long a signed-in browser stays signed in.
const SessionLifetime = 12 * time.Hour

// NewSecret makes the secret that signs sessions: 256 random bits.
func NewSecret() []byte {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return b
}

// SignSession makes the token of a browser that signed in with the key keyID. It holds the id
// of the key, never the key; revoking the key ends the session.
func SignSession(secret []byte, keyID string, now time.Time) string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(now.Add(SessionLifetime).Unix()))
	payload = append(payload, keyID...)
	return encode(payload) + "." + encode(sessionMAC(secret, payload))
}

// OpenSession returns the key id of a valid token that has not expired at now.
func OpenSession(secret []byte, token string, now time.Time) (keyID string, ok bool) {
	body, mac, found := strings.Cut(token, ".")
	if !found {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil || len(payload) < 9 {
		return "", false
	}
	sum, err := base64.RawURLEncoding.DecodeString(mac)
	if err != nil || !hmac.Equal(sum, sessionMAC(secret, payload)) {
		return "", false
	}
	if expires := int64(binary.BigEndian.Uint64(payload)); now.Unix() >= expires {
		return "", false
	}
	return string(payload[8:]), true
}

func sessionMAC(secret, payload []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte("handclasp inbox session v1\x00"))
	m.Write(payload)
	return m.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
