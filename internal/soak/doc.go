// Package soak holds the long counts. They run a real hub, load it, break something under it,
// and compare what it had acknowledged with what is there afterwards.
//
// Everything but this file stands behind the build tag soak:
//
//	make soak-kill                               kill -9 of the hub, immediate stop of PostgreSQL
//	make soak-owner                              kill -9 of the process that owns a shared folder
//	go test -tags soak -v -run SQLite ./internal/soak
//
// Settings come from the environment:
//
//	HANDCLASP_SOAK_ROUNDS      rounds on SQLite (20; 10 of the owner), and at most so many on PostgreSQL
//	HANDCLASP_SOAK_PG_ROUNDS   rounds on PostgreSQL (10)
//	HANDCLASP_SOAK_TAGS        further build tags of the hub, to plant a mutant in it
//	HANDCLASP_SOAK_SEED        the seed that an earlier run printed
package soak
