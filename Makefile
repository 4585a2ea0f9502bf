# `make` alone lists the targets: each is documented by the comment after its ##.
.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## start a hub on the default data folder (ARGS="--listen ..." for flags)
	go run ./cmd/handclasp serve $(ARGS)

.PHONY: demo
demo: ## pass one handoff between two agents in a temporary hub, and end
	go run ./cmd/handclasp demo --exit

.PHONY: test
test: ## run the tests on SQLite, and on PostgreSQL if its server programs are installed
	go test ./...

.PHONY: check
check: ## what CI runs on every change; says which suites ran and which did not
	scripts/check

.PHONY: golden
golden: ## rewrite the golden tools, prompts and resources; their diff is a review of the public API
	go test ./internal/mcpserver -run Golden -update

.PHONY: lint
lint: ## lint with the pinned golangci-lint
	scripts/golangci-lint run

.PHONY: fmt
fmt: ## format with gofumpt
	scripts/golangci-lint fmt

.PHONY: bench
bench: ## measure the hub against the raw limit of this machine (minutes)
	go run ./internal/bench

.PHONY: soak
soak: soak-pool ## the long counts: kills, restarts, many writers, the pool (up to two hours)
	go test -tags soak -count=1 -timeout 60m -v ./internal/soak/...

.PHONY: soak-pool
soak-pool: ## the long counts of the pool: random programs, histories, races (up to an hour)
	HANDCLASP_PROGRAMS=10000 go test -count=1 -timeout 60m -v ./internal/poolmodel
	HANDCLASP_LINEAR_RUNS=200 go test -count=1 -timeout 20m -v -run TestWhatClientsSee ./internal/hub
	HANDCLASP_RACES=200 go test -count=1 -timeout 30m -run 'Race|TestTheWorkIs|TestDeliveredWork|TestAVerdict|TestOfTwoV|TestAnAgentThatIs|TestTwoDep|TestOneDep|TestADep|TestTwoClaimsOf|TestTheCreatorCancels|TestWhoClaims|TestTheHolder|TestAClaimedH|TestACapab|TestOfThirty|TestThirtyTwoThat' ./internal/hub

.PHONY: soak-kill
soak-kill: ## kill the hub under load and count what it had acknowledged
	scripts/soak-kill

.PHONY: soak-owner
soak-owner: ## kill the owner of a shared folder under load and count; time parked readers
	scripts/soak-owner

.PHONY: interop
interop: ## a round trip by clients that others wrote (needs node)
	scripts/interop

.PHONY: conformance
conformance: ## the official MCP conformance suite; writes docs/conformance (needs node)
	scripts/conformance

.PHONY: clients
clients: ## give the real Claude Code and Codex the configuration that we print (needs node)
	scripts/clients

.PHONY: postfix
postfix: ## send mail through a real Postfix and read it as a person would (needs root; installs it)
	scripts/postfix

.PHONY: mutants
mutants: ## build hubs with known faults and see that the tests catch each
	scripts/mutants

.PHONY: tools
tools: ## install the pinned golangci-lint if it is missing
	scripts/golangci-lint version
