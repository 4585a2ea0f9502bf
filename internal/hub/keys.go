package hub

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// credentialChanged starts the announcement that a key or an agent is no longer what it was;
// the agent's id follows.
const credentialChanged = "credential:"

const (
	// cacheFor bounds how long another node may still trust what it has read: an operator's
	// command takes effect within a second everywhere, and at once on the node that ran it.
	cacheFor = 750 * time.Millisecond
	// cacheSize bounds the memory of the cache.
	cacheSize = 10_000
	// touchEvery is how often last uses are written down.
	touchEvery = 5 * time.Second
)

type identity struct {
	actor handoff.Actor
	read  time.Time
}

// keyCache remembers who is behind a key, so that a call costs no query for it.
type keyCache struct {
	mu     sync.Mutex
	shared bool
	byHash map[string]identity
	// generation changes whenever something is forgotten, so that an answer that was read
	// before is not remembered after.
	generation uint64
	used       map[use]time.Time // when, the last time
}

// use is by which key an agent called; by none where the user of the data folder called as it.
type use struct{ agentID, keyID string }

func newKeyCache(shared bool) *keyCache {
	return &keyCache{shared: shared, byHash: map[string]identity{}, used: map[use]time.Time{}}
}

func (k *keyCache) get(hash string, now time.Time) (handoff.Actor, uint64, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	id, ok := k.byHash[hash]
	if ok && k.shared && now.Sub(id.read) > cacheFor {
		delete(k.byHash, hash)
		ok = false
	}
	if ok {
		k.used[use{id.actor.ID, id.actor.KeyID}] = now
	}
	return id.actor, k.generation, ok
}

func (k *keyCache) put(hash string, actor handoff.Actor, generation uint64, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used[use{actor.ID, actor.KeyID}] = now
	if generation != k.generation {
		return
	}
	if len(k.byHash) >= cacheSize {
		clear(k.byHash)
	}
	k.byHash[hash] = identity{actor, now}
}

func (u use) compare(v use) int {
	return cmp.Or(strings.Compare(u.agentID, v.agentID), strings.Compare(u.keyID, v.keyID))
}

// sawAgent notes a call that came without a key, from the user of the data folder.
func (k *keyCache) sawAgent(agentID string, now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.used[use{agentID: agentID}] = now
}

func (k *keyCache) forget(agentID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	for hash, id := range k.byHash {
		if id.actor.ID == agentID {
			delete(k.byHash, hash)
		}
	}
}

func (k *keyCache) takeUsed() map[use]time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.used
	k.used = map[use]time.Time{}
	return used
}

var errNoKey = &handoff.Error{
	Code:    handoff.CodeUnauthenticated,
	Message: "the API key is unknown, revoked, or its agent is disabled",
	Hint:    "Send Authorization: Bearer hc_live_…; the operator makes a key with: handclasp agent key rotate HANDLE, and turns an agent on again with: handclasp agent enable HANDLE.",
}

// Authenticate resolves an API key to the agent behind it: unauthenticated when the key is
// unknown or revoked or its agent is disabled.
func (h *Hub) Authenticate(ctx context.Context, key string) (handoff.Actor, error) {
	if !auth.IsKey(key) {
		return handoff.Actor{}, errNoKey
	}
	hash := auth.HashKey(key)
	now := time.Now()
	actor, generation, ok := h.keys.get(hash, now)
	if ok {
		return actor, nil
	}
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		k, a, err := tx.KeyByHash(hash)
		if err != nil {
			return err
		}
		actor, err = identify(k, a)
		return err
	})
	if store.IsNoRows(err) {
		err = errNoKey
	}
	if err != nil {
		return handoff.Actor{}, err
	}
	h.keys.put(hash, actor, generation, now)
	return actor, nil
}

// AuthenticateKeyID resolves a key that a session was signed for.
func (h *Hub) AuthenticateKeyID(ctx context.Context, keyID string) (handoff.Actor, error) {
	var actor handoff.Actor
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		k, a, err := tx.KeyByID(keyID)
		if err != nil {
			return err
		}
		actor, err = identify(k, a)
		return err
	})
	if store.IsNoRows(err) {
		err = errNoKey
	}
	return actor, err
}

// ActAs gives the agent that the operator names, to call as it: unauthenticated when there is no
// such agent or it is disabled. It is for processes on the data folder, whose user is the
// operator anyway.
func (h *Hub) ActAs(ctx context.Context, handle string) (handoff.Actor, error) {
	var a store.AgentRow
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		a, err = agentNamed(tx, handle)
		return err
	})
	var e *handoff.Error
	switch {
	case errors.As(err, &e) && e.Code == handoff.CodeNotFound:
		return handoff.Actor{}, noAgentToBe(handle, e)
	case err != nil:
		return handoff.Actor{}, err
	case a.Disabled:
		return handoff.Actor{}, handoff.Refuse(handoff.CodeUnauthenticated, "the agent "+a.Handle+" is disabled", "Turn it on again with: handclasp agent enable "+a.Handle)
	}
	h.keys.sawAgent(a.ID, time.Now())
	return handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}, nil
}

// noAgentToBe makes of a name that is no agent's a credential that does not count.
func noAgentToBe(handle string, unknown *handoff.Error) error {
	if handle == "" {
		return handoff.Refuse(handoff.CodeUnauthenticated, "no agent is named to call as", "")
	}
	message := unknown.Message
	if near, _ := unknown.Details["near_matches"].([]string); len(near) > 0 {
		message += "; did you mean " + joinOr(near) + "?"
	}
	return handoff.Refuse(handoff.CodeUnauthenticated, message, "See handclasp agent list, or register it with: handclasp agent add NAME@TEAM")
}

// StillValid says whether the credential behind an actor still counts. Calls that were parked
// ask again before they go on.
func (h *Hub) StillValid(ctx context.Context, actor handoff.Actor) error {
	if actor.KeyID != "" {
		_, err := h.AuthenticateKeyID(ctx, actor.KeyID)
		return err
	}
	if actor.Kind != handoff.KindAgent {
		return nil
	}
	_, err := h.ActAs(ctx, actor.Handle)
	return err
}

func identify(k store.Key, a store.AgentRow) (handoff.Actor, error) {
	if !k.RevokedAt.IsZero() || a.Disabled {
		return handoff.Actor{}, errNoKey
	}
	return handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle, KeyID: k.ID}, nil
}

// touch writes down when keys and sessions were used.
func (h *Hub) touch(ctx context.Context) error {
	return errors.Join(h.touchKeys(ctx), h.touchSessions(ctx))
}

func (h *Hub) touchKeys(ctx context.Context) error {
	used := h.keys.takeUsed()
	if len(used) == 0 {
		return nil
	}
	return h.st.Write(ctx, func(tx *store.Tx) error {
		for _, u := range slices.SortedFunc(maps.Keys(used), use.compare) { // one order for all nodes
			if err := tx.Touch(u.keyID, u.agentID, used[u]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Run keeps the hub in touch with the other nodes and writes down last uses until ctx ends.
func (h *Hub) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = h.st.Listen(ctx, h.wakeLocal, h.waiters.recheckAll)
	})
	tick := time.NewTicker(touchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			return h.touch(last)
		case <-tick.C:
			if err := h.touch(ctx); err != nil {
				h.log.Warn("last uses of keys or sessions were not written down", "error", err)
			}
		}
	}
}

// loadSecret reads a secret that signs tokens of one kind and makes it at first use. All nodes
// share it through the database.
func (h *Hub) loadSecret(name string) func(context.Context) ([]byte, error) {
	return onceValue(func(ctx context.Context) ([]byte, error) {
		var text string
		err := h.st.Write(ctx, func(tx *store.Tx) error {
			var err error
			text, err = tx.SettingOrNew(name, hex.EncodeToString(auth.NewSecret()))
			return err
		})
		if err != nil {
			return nil, err
		}
		return hex.DecodeString(text)
	})
}

// SignIn checks a key and returns the token for a browser's session and who signed in.
func (h *Hub) SignIn(ctx context.Context, key string) (token string, actor handoff.Actor, err error) {
	if actor, err = h.Authenticate(ctx, key); err != nil {
		return "", actor, err
	}
	secret, err := h.secret(ctx)
	if err != nil {
		return "", actor, err
	}
	return auth.SignSession(secret, actor.KeyID, time.Now()), actor, nil
}

// Session resolves a browser's session token; unauthenticated when it is over or its key was
// revoked.
func (h *Hub) Session(ctx context.Context, token string) (handoff.Actor, error) {
	secret, err := h.secret(ctx)
	if err != nil {
		return handoff.Actor{}, err
	}
	keyID, ok := auth.OpenSession(secret, token, time.Now())
	if !ok {
		return handoff.Actor{}, errNoKey
	}
	return h.AuthenticateKeyID(ctx, keyID)
}

// IsUnauthenticated reports whether err says that a credential does not count.
func IsUnauthenticated(err error) bool { return isCode(err, handoff.CodeUnauthenticated) }

// Sentence is what a person may read of a refusal: what was wrong, and what to do.
func Sentence(err error) string {
	var e *handoff.Error
	if !errors.As(err, &e) {
		return "internal error"
	}
	return handoff.Sentences(e.Message, e.Hint)
}
