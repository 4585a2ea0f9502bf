package auth

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func TestAnInviteIsAJWTThatSaysWhoInvitesWhom(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	in := Invite{ID: "0197", Inviter: "anna@acme", Handle: "frank@acme", Expires: 1796138113}
	token := SignInvite(secret, in)
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		t.Fatalf("it has %d parts", len(parts))
	}
	for i, want := range []string{`{"alg":"HS256","typ":"JWT"}`, `{"jti":"0197","inviter_handle":"anna@acme","handle":"frank@acme","exp":1796138113}`} {
		if got, err := base64.RawURLEncoding.DecodeString(parts[i]); err != nil || string(got) != want {
			t.Errorf("part %d is %s, %v", i, got, err)
		}
	}
	if out, ok := OpenInvite(secret, token); !ok || out != in {
		t.Errorf("it opens as %+v, %v", out, ok)
	}
}

func TestAnInviteThatWasNotSignedHereOpensForNobody(t *testing.T) {
	t.Parallel()
	secret := NewSecret()
	token := SignInvite(secret, Invite{ID: "0197", Handle: "frank@acme"})
	parts := strings.Split(token, ".")
	encoded := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	for name, forged := range map[string]string{
		"empty": "", "no dots": "abc", "dots": "..", "cut": token[:len(token)-1], "longer": token + "A", "padded": token + "=", "broken": token[:len(token)-3] + "\n" + token[len(token)-3:],
		"another secret":  SignInvite(NewSecret(), Invite{ID: "0197", Handle: "frank@acme"}),
		"another handle":  parts[0] + "." + encoded(`{"jti":"0197","handle":"root@acme"}`) + "." + parts[2],
		"no algorithm":    encoded(`{"alg":"none"}`) + "." + parts[1] + ".",
		"no signature":    parts[0] + "." + parts[1] + ".",
		"a session":       SignSession(secret, "0197", time.Unix(1796138113, 0)),
		"signed, no JSON": signed(secret, parts[0]+"."+encoded("x")),
		"signed, no id":   signed(secret, parts[0]+"."+encoded(`{"handle":"frank@acme"}`)),
		"signed, 1 part":  signed(secret, parts[0]),
	} {
		if out, ok := OpenInvite(secret, forged); ok {
			t.Errorf("%s: it opens as %+v", name, out)
		}
	}
}

func signed(secret []byte, s string) string { return s + "." + encode(inviteMAC(secret, s)) }
