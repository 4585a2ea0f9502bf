// Package handoff holds the words and the rules of Handclasp: what a handoff is, which
// states it moves through, who may move it, and how a refusal is worded.
//
// Everything here is pure. Nothing reads a clock, a database or the network: the time, the
// actor and the row come in as arguments, and a decision or a typed [Error] comes out. The
// package imports the standard library, golang.org/x/text and uniseg, and nothing else.
//
// Read [Handoff] and transitions.go first; they are the state machine. [Error] and the table
// in errors.go are what every door shows when a rule says no.
package handoff
