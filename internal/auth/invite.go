package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Invite is what a join link says (contracts: relay-wire). Whoever has the link can read it.
type Invite struct {
	ID      string `json:"jti"`
	Inviter string `json:"inviter_handle"`
	Handle  string `json:"handle"`
	// Expires is Unix seconds.
	Expires int64 `json:"exp"`
}

// inviteHeader makes the token a JWT (RFC 7519), which is what clients of the relay dialect take
// apart. It is never read: the signature covers it, and we sign in one way only.
const inviteHeader = `{"alg":"HS256","typ":"JWT"}`

// SignInvite makes the token of a join link: header, claims and signature, each base64url.
func SignInvite(secret []byte, in Invite) string {
	claims, _ := json.Marshal(in) // strings and a number
	signed := encode([]byte(inviteHeader)) + "." + encode(claims)
	return signed + "." + encode(inviteMAC(secret, signed))
}

// OpenInvite returns what a token says that was signed with secret. Whether it still counts is for
// the caller to say.
func OpenInvite(secret []byte, token string) (Invite, bool) {
	end := strings.LastIndexByte(token, '.')
	if end < 0 {
		return Invite{}, false
	}
	if strings.ContainsAny(token, "\r\n") { // base64 would skip them
		return Invite{}, false
	}
	signed := token[:end]
	mac, err := base64.RawURLEncoding.Strict().DecodeString(token[end+1:])
	if err != nil || !hmac.Equal(mac, inviteMAC(secret, signed)) {
		return Invite{}, false
	}
	_, body, _ := strings.Cut(signed, ".")
	claims, err := base64.RawURLEncoding.DecodeString(body)
	var in Invite
	if err != nil || json.Unmarshal(claims, &in) != nil || in.ID == "" {
		return Invite{}, false
	}
	return in, true
}

func inviteMAC(secret []byte, signed string) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(signed))
	return m.Sum(nil)
}
