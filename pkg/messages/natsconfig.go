package messages

import (
	"fmt"
	"strings"
)

// ServerConfig describes the users of one model for a nats-server's configuration.
// Each role may do what the protocol needs and nothing else; models are isolated by
// stream, tenants by account.
type ServerConfig struct {
	Token   string // subject token of the model
	Account string // "DRYDOCK_<Token>"
	// Publishers are the public nkeys of the ranks, by rank.
	Publishers []string
	// Receivers are the public nkeys of the receivers, by receiver name.
	Receivers []NamedKey
	// Operators are the public nkeys of those who may initialise, roll back and abandon.
	Operators []string
}

// NamedKey is a receiver's name and public nkey.
type NamedKey struct {
	Name, Key string
	Engine    string // the engine that it feeds together with other receivers; "" none
}

// PublisherName is the name under which a rank of a guarded model writes its status.
func PublisherName(rank int) string { return fmt.Sprintf("publisher-%d", rank) }

// InboxPrefix is what a user of a guarded model sets as DialConfig.InboxPrefix: its own,
// so that nobody can listen to the answers of others.
func InboxPrefix(name string) string { return "_INBOX_" + name }

// OperatorName is the name for operators' inboxes.
const OperatorName = "operator"

// grants are the subjects that one user may use.
type grants struct{ publish, subscribe []string }

// User is one user with what it may do, for whoever writes permissions in another form
// than a server's configuration, such as JWTs.
type User struct {
	Role      string // what it is, for people: "rank 0", "receiver rollout-0", "operator"
	Name      string // as in InboxPrefix
	Key       string // public nkey
	Publish   []string
	Subscribe []string
}

// Users lists the users: ranks, receivers, operators.
func (s ServerConfig) Users() []User {
	var list []User
	add := func(role, name, key string, g grants) {
		list = append(list, User{role, name, key, g.publish, g.subscribe})
	}
	for rank, key := range s.Publishers {
		add(fmt.Sprintf("rank %d", rank), PublisherName(rank), key, s.publisher(rank))
	}
	for _, r := range s.Receivers {
		add("receiver "+r.Name, r.Name, r.Key, s.receiver(r))
	}
	for _, key := range s.Operators {
		add(OperatorName, OperatorName, key, s.operator())
	}
	return list
}

// String writes an accounts block.
func (s ServerConfig) String() string {
	var b strings.Builder
	account := orDefault(s.Account, "DRYDOCK_"+s.Token)
	fmt.Fprintf(&b, "# Permissions for model token %q. Generated: change the inputs, not this file.\n", s.Token)
	fmt.Fprintf(&b, "accounts {\n  %s {\n    jetstream: enabled\n    users: [\n", account)
	for _, u := range s.Users() {
		u.write(&b)
	}
	b.WriteString("    ]\n  }\n}\n")
	return b.String()
}

// Validate refuses names and keys that could not stand in a configuration.
func (s ServerConfig) Validate() error {
	if !isToken(s.Token) || s.Account != "" && !isToken(s.Account) {
		return fmt.Errorf("server configuration: token %q or account %q is not of A-Z a-z 0-9 _ -", s.Token, s.Account)
	}
	keys := append(append([]string{}, s.Publishers...), s.Operators...)
	for _, r := range s.Receivers {
		if !isToken(r.Name) || r.Engine != "" && !isToken(r.Engine) {
			return fmt.Errorf("server configuration: receiver %q or its engine %q is not of A-Z a-z 0-9 _ -", r.Name, r.Engine)
		}
		keys = append(keys, r.Key)
	}
	for _, k := range keys {
		if len(k) != 56 || k[0] != 'U' || !isToken(k) {
			return fmt.Errorf("server configuration: %q is not a public user nkey", k)
		}
	}
	return nil
}

func (u *User) write(b *strings.Builder) {
	fmt.Fprintf(b, "      { # %s\n        nkey: %s\n        permissions {\n", u.Role, u.Key)
	for _, side := range []struct {
		name     string
		subjects []string
	}{{"publish", u.Publish}, {"subscribe", u.Subscribe}} {
		fmt.Fprintf(b, "          %s { allow: [\n", side.name)
		for _, subject := range side.subjects {
			fmt.Fprintf(b, "            %q\n", subject)
		}
		b.WriteString("          ] }\n")
	}
	b.WriteString("        }\n      }\n")
}

// reads are the requests that every role makes.
func (s ServerConfig) reads() []string {
	sub := subjects{s.Token}
	var list []string
	for _, stream := range []string{sub.stream(), "KV_" + sub.leaseBucket(), "KV_" + sub.statusBucket()} {
		list = append(list, "$JS.API.DIRECT.GET."+stream, "$JS.API.STREAM.MSG.GET."+stream)
	}
	return list
}

func (s ServerConfig) listens(name string) []string {
	return []string{InboxPrefix(name) + ".>", subjects{s.Token}.notifyAll()}
}

func (s ServerConfig) publisher(rank int) grants {
	sub := subjects{s.Token}
	name := PublisherName(rank)
	g := grants{publish: []string{
		fmt.Sprintf("%sv.*.*.t.%d", sub.root(), rank),
		fmt.Sprintf("%sv.*.*.d.%d.*", sub.root(), rank),
		sub.root() + "b.>",
		sub.commits(),
		sub.status(name),
		"$JS.API.STREAM.PURGE." + sub.stream(),
	}, subscribe: s.listens(name)}
	if rank == 0 {
		g.publish = append(g.publish, sub.runs())
	}
	g.publish = append(g.publish, s.reads()...)
	return g
}

func (s ServerConfig) receiver(r NamedKey) grants {
	sub := subjects{s.Token}
	g := grants{publish: append([]string{
		"$KV." + sub.leaseBucket() + ".*.*." + r.Name,
		sub.status(r.Name),
	}, s.reads()...), subscribe: s.listens(r.Name)}
	if r.Engine != "" {
		g.publish, g.subscribe = append(g.publish, sub.engine(r.Engine)), append(g.subscribe, sub.engine(r.Engine))
	}
	return g
}

func (s ServerConfig) operator() grants {
	sub := subjects{s.Token}
	g := grants{publish: append([]string{
		sub.orders(),
		sub.commits(),
		"refit-notify." + s.Token + ".o.*",
		"$JS.API.INFO",
	}, s.reads()...), subscribe: s.listens(OperatorName)}
	for _, stream := range []string{sub.stream(), "KV_" + sub.leaseBucket(), "KV_" + sub.statusBucket()} {
		for _, verb := range []string{"INFO", "CREATE"} {
			g.publish = append(g.publish, "$JS.API.STREAM."+verb+"."+stream)
		}
	}
	return g
}
