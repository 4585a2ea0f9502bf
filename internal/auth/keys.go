// Package auth holds the formats of credentials: API keys, sessions of agents, the inbox session and
// join links, how they are made, hashed, signed and verified. It is pure: a credential becomes a claim here, and
// package hub decides who that is and whether it still counts.
package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

// KeyPrefix starts every API key, so that a leaked one is recognised by scanners.
const KeyPrefix = "hc_live_"

// keyBytes of randomness make 192 bits.
const keyBytes = 24

// NewKey makes an API key and returns it with its hash, which is what the hub keeps, and a
// hint to recognise it by. The key itself is shown once and kept nowhere.
func NewKey() (key, hash, hint string) {
	b := make([]byte, keyBytes)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	key = KeyPrefix + hex.EncodeToString(b)
	return key, HashKey(key), key[:len(KeyPrefix)+4]
}

// HashKey is the form of a key at rest: hex SHA-256. A key holds 192 random bits, so a slow
// hash would add nothing.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// SessionPrefix starts the secret of a session of an agent.
const SessionPrefix = "hcs_"

// NewSessionSecret makes the secret of a session and returns it with its hash; as with a key, only
// the hash is kept.
func NewSessionSecret() (secret, hash string) {
	b := make([]byte, keyBytes)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	secret = SessionPrefix + hex.EncodeToString(b)
	return secret, HashKey(secret)
}

// NewWebhookSecret makes the secret by which webhooks are signed, in the form that verifying libraries
// take (Standard Webhooks): whsec_ and 32 bytes in base64. Unlike a key it is kept, because it signs.
func NewWebhookSecret() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails (crypto/rand)
	return "whsec_" + base64.StdEncoding.EncodeToString(b)
}

// IsSecretOf reports whether secret is the one that hash was made of, in a time that says nothing
// about either.
func IsSecretOf(secret, hash string) bool {
	return subtle.ConstantTimeCompare([]byte(HashKey(secret)), []byte(hash)) == 1
}

// IsKey reports whether s has the form of an API key.
func IsKey(s string) bool {
	rest, ok := strings.CutPrefix(s, KeyPrefix)
	if !ok || len(rest) != 2*keyBytes {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}
