package auth

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Scope says what a signed token is good for. Each has an audience of its own, so that one kind is
// never taken for another.
type Scope string

// The scopes: taking a handoff over, once, and working on it afterwards.
const (
	ScopeContinue Scope = "continue"
	ScopeSession  Scope = "session"
)

func (s Scope) audience() string { return "handclasp:" + string(s) }

// Token is what a signed token says. Whoever holds it can read it.
type Token struct {
	HandoffID string
	Scope     Scope
	// Subject is who a session was given to; empty in a continuation.
	Subject  string
	IssuedAt time.Time // whole seconds
	Expires  time.Time // whole seconds
}

type tokenClaims struct {
	HandoffID string `json:"hid"`
	Scope     Scope  `json:"scope"`
	jwt.RegisteredClaims
}

// Why a token does not open.
var (
	ErrTokenMalformed = errors.New("it is no signed token")
	ErrTokenSignature = errors.New("its signature is not of this hub")
	ErrTokenScope     = errors.New("it is a token for another purpose")
)

// SignToken makes a JWT (RFC 7519) in the one way that we sign: HMAC with SHA-256. The same input
// gives the same token, so that it need not be kept.
func SignToken(keyID string, secret []byte, t Token) string {
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, tokenClaims{
		HandoffID: t.HandoffID, Scope: t.Scope,
		RegisteredClaims: jwt.RegisteredClaims{
			Audience: jwt.ClaimStrings{t.Scope.audience()}, Subject: t.Subject,
			IssuedAt: jwt.NewNumericDate(t.IssuedAt), ExpiresAt: jwt.NewNumericDate(t.Expires),
		},
	})
	token.Header["kid"] = keyID
	signed, err := token.SignedString(secret)
	if err != nil {
		panic("sign a token: " + err.Error()) // only a key of a wrong type gets here
	}
	return signed
}

// OpenToken returns what a token says that was signed by one of our keys for the scope: secret gives a
// key by its id, nil for one that does not count. The errors come in this order: malformed, signature,
// scope. Times are for the caller to judge.
func OpenToken(token string, scope Scope, secret func(keyID string) []byte) (Token, error) {
	const most = 4096
	if len(token) > most || strings.Count(token, ".") != 2 {
		return Token{}, ErrTokenMalformed
	}
	parser := jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation())
	var claims tokenClaims
	parsed, _, err := parser.ParseUnverified(token, &claims)
	if err != nil && !errors.Is(err, jwt.ErrTokenUnverifiable) || strings.ContainsAny(token, "\r\n") {
		return Token{}, ErrTokenMalformed
	}
	keyID, _ := parsed.Header["kid"].(string)
	key := secret(keyID)
	if parsed.Method != jwt.SigningMethodHS256 || key == nil {
		return Token{}, ErrTokenSignature
	}
	at := strings.LastIndexByte(token, '.')
	signature, err := parser.DecodeSegment(token[at+1:])
	if err != nil {
		return Token{}, ErrTokenMalformed
	}
	if parsed.Method.Verify(token[:at], signature, key) != nil {
		return Token{}, ErrTokenSignature
	}
	if claims.Scope != scope || len(claims.Audience) != 1 || claims.Audience[0] != scope.audience() || claims.HandoffID == "" || claims.IssuedAt == nil || claims.ExpiresAt == nil {
		return Token{}, ErrTokenScope
	}
	return Token{claims.HandoffID, claims.Scope, claims.Subject, claims.IssuedAt.UTC(), claims.ExpiresAt.UTC()}, nil
}

// IsToken reports whether s has the form of a signed token, whoever signed it.
func IsToken(s string) bool {
	_, err := OpenToken(s, ScopeContinue, func(string) []byte { return nil })
	return !errors.Is(err, ErrTokenMalformed)
}

// linkBytes of a MAC make 160 bits.
const linkBytes = 20

var linkAlphabet = base32.StdEncoding.WithPadding(base32.NoPadding)

// PersonToken is what a person's link holds: a MAC over what it opens, for whom, and in which
// generation. It is one case of letters and digits, because mail servers change the case of addresses.
func PersonToken(secret []byte, use, handoffID, recipient string, generation int) string {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(strings.Join([]string{"handclasp person link v1", use, handoffID, recipient, strconv.Itoa(generation)}, "\x00")))
	return strings.ToLower(linkAlphabet.EncodeToString(m.Sum(nil)[:linkBytes]))
}

// IsPersonToken reports whether s has the form of a person's token.
func IsPersonToken(s string) bool {
	if len(s) != linkAlphabet.EncodedLen(linkBytes) {
		return false
	}
	_, err := linkAlphabet.DecodeString(strings.ToUpper(s))
	return err == nil && s == strings.ToLower(s)
}
