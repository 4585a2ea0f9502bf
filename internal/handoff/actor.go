package handoff

// ActorKind says what stands behind a call.
type ActorKind string

// The kinds of actor. Only agents hold keys today; persons and bearers come with the desk.
const (
	KindAgent    ActorKind = "agent"
	KindOperator ActorKind = "operator"
	KindPerson   ActorKind = "person"
	KindBearer   ActorKind = "bearer"
	// KindSystem is the hub itself: sweeps and deadlines.
	KindSystem ActorKind = "system"
)

// Actor is who is calling, as established by a credential and never by an argument.
type Actor struct {
	Kind ActorKind
	// ID is the agent's UUID, or a reserved word for the others ("operator", "hub").
	ID string
	// Handle is the agent's name as registered.
	Handle string
	// KeyID is the API key that proved the identity; empty for the operator.
	KeyID string
}

// Operator is the actor that administers the hub.
func Operator() Actor { return Actor{Kind: KindOperator, ID: "operator", Handle: "operator"} }

// System is the hub acting on its own: deadlines, lapsed leases.
func System() Actor { return Actor{Kind: KindSystem, ID: "hub", Handle: "hub"} }

// IsOperator reports whether a is the operator.
func (a Actor) IsOperator() bool { return a.Kind == KindOperator }

// Agent is a registered identity that may call the hub.
type Agent struct {
	ID           string
	Handle       string
	Name         string
	Role         string
	Skills       []string
	Repos        []string
	Capabilities []string
	Tags         map[string][]string
	Unlisted     bool
	Disabled     bool
	// Outside: the agent may not use the workspace of the handoff at hand, which admits members only.
	Outside bool
}

// HasCapability reports whether the agent offers the capability; names compare exactly.
func (a *Agent) HasCapability(name string) bool {
	for _, c := range a.Capabilities {
		if c == name {
			return true
		}
	}
	return false
}
