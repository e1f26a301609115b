package operator

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/drydock-rl/drydock/internal/cli"
	"github.com/drydock-rl/drydock/pkg/messages"
)

// Names of the seeds that sign. A dot, which no user's name has, keeps them apart from those of users.
const (
	operatorSeed = "nats.operator"
	accountSeed  = "nats.account"
	systemSeed   = "nats.system"
)

// jwtConfig writes the credentials of users, and returns the block for a server in operator mode: the operator's JWT,
// and those of the account and of the system account, preloaded. Credentials that say the same already are left alone:
// they have been handed out.
func (r *ring) jwtConfig(u Users, users []messages.User) (string, error) {
	var signers [3]nkeys.KeyPair
	for i, name := range []string{operatorSeed, accountSeed, systemSeed} {
		var err error
		if signers[i], err = r.signer(name); err != nil {
			return "", fmt.Errorf("key %s: %w", name, err)
		}
		defer signers[i].Wipe()
	}
	op, account, system := signers[0], signers[1], signers[2]
	for _, user := range users {
		if err := r.credentials(user, account); err != nil {
			return "", fmt.Errorf("credentials of %s: %w", user.Name, err)
		}
	}
	return operatorBlock(messages.Token(u.Model), op, account, system)
}

// signer finds or makes a key that signs; its name says of which kind.
func (r *ring) signer(name string) (nkeys.KeyPair, error) {
	path := filepath.Join(r.dir, name+".nk")
	b, err := cli.ReadFile(path, maxSmall)
	if err == nil {
		return nkeys.ParseDecoratedNKey(b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	create := nkeys.CreateAccount
	if name == operatorSeed {
		create = nkeys.CreateOperator
	}
	pair, err := create()
	if err != nil {
		return nil, err
	}
	seed, err := pair.Seed()
	if err != nil {
		return nil, err
	}
	return pair, r.secret(name+".nk", append(seed, '\n'))
}

// claims are what a user may do, as its JWT says it.
func claims(u messages.User) *jwt.UserClaims {
	c := jwt.NewUserClaims(u.Key)
	c.Name = u.Name
	c.Pub.Allow, c.Sub.Allow = u.Publish, u.Subscribe
	return c
}

// credentials writes NAME.creds, or NAME.jwt for a user that keeps its seed.
func (r *ring) credentials(u messages.User, account nkeys.KeyPair) error {
	seed, err := cli.ReadFile(filepath.Join(r.dir, u.Name+".nk"), maxSmall)
	own := errors.Is(err, fs.ErrNotExist)
	if err != nil && !own {
		return err
	}
	name := u.Name + ".creds"
	if own {
		name = u.Name + ".jwt"
	}
	want := claims(u)
	issuer, err := account.PublicKey()
	if err != nil {
		return err
	}
	path := filepath.Join(r.dir, name)
	if there, err := cli.ReadFile(path, maxSmall); err == nil {
		if saysTheSame(there, want, issuer) {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	token, err := want.Encode(account)
	if err != nil {
		return err
	}
	content := []byte(token + "\n")
	if !own {
		pair, err := nkeys.ParseDecoratedUserNKey(seed)
		if err != nil {
			return err
		}
		defer pair.Wipe()
		bare, err := pair.Seed()
		if err != nil {
			return err
		}
		if content, err = jwt.FormatUserConfig(token, bare); err != nil {
			return err
		}
	}
	return r.secret(name, content)
}

// saysTheSame compares credentials that were written before with what they should say; when they were issued is no matter.
func saysTheSame(there []byte, want *jwt.UserClaims, issuer string) bool {
	token, err := jwt.ParseDecoratedJWT(there)
	if err != nil {
		return false
	}
	have, err := jwt.DecodeUserClaims(token)
	return err == nil && have.Issuer == issuer && have.Subject == want.Subject &&
		slices.Equal(have.Pub.Allow, want.Pub.Allow) && slices.Equal(have.Sub.Allow, want.Sub.Allow)
}

// operatorBlock writes what the server must know.
func operatorBlock(token string, op, account, system nkeys.KeyPair) (string, error) {
	sys, err := encoded(system, "SYS", op, func(*jwt.AccountClaims) {})
	if err != nil {
		return "", err
	}
	acc, err := encoded(account, "DRYDOCK_"+token, op, func(c *jwt.AccountClaims) {
		c.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit}
	})
	if err != nil {
		return "", err
	}
	public, err := op.PublicKey()
	if err != nil {
		return "", err
	}
	c := jwt.NewOperatorClaims(public)
	c.Name, c.SystemAccount = "drydock", sys.public
	self, err := c.Encode(op)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Operator and account for model token %q. Generated: change the inputs, not this file.\n", token)
	fmt.Fprintf(&b, "operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {\n", self, sys.public)
	fmt.Fprintf(&b, "  %s: %s\n  %s: %s\n}\n", sys.public, sys.jwt, acc.public, acc.jwt)
	return b.String(), nil
}

type encodedAccount struct{ public, jwt string }

func encoded(account nkeys.KeyPair, name string, op nkeys.KeyPair, limit func(*jwt.AccountClaims)) (encodedAccount, error) {
	public, err := account.PublicKey()
	if err != nil {
		return encodedAccount{}, err
	}
	c := jwt.NewAccountClaims(public)
	c.Name = name
	limit(c)
	token, err := c.Encode(op)
	return encodedAccount{public, token}, err
}
