//go:build linux && (amd64 || arm64)

package nixlsys

import (
	"fmt"
	"slices"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Library is the loaded library: one address for each C function. It is never unloaded, because its threads live on.
type Library struct {
	isStub, createAgent, destroyAgent             uintptr
	getLocalMD, loadRemoteMD, invalidateRemoteMD  uintptr
	createParams, paramsAdd, destroyParams        uintptr
	getPlugins, listSize, listGet, destroyList    uintptr
	createBackend, destroyBackend                 uintptr
	createOptions, optionsAddBackend, freeOptions uintptr
	createReg, regAdd, destroyReg                 uintptr
	registerMem, deregisterMem                    uintptr
	createXfer, xferAdd, destroyXfer              uintptr
	createReq, post, status, release, destroyReq  uintptr
	free                                          uintptr
}

// symbols names the C functions that are needed.
func (l *Library) symbols() map[string]*uintptr {
	return map[string]*uintptr{
		"is_stub": &l.isStub, "create_configured_agent": &l.createAgent, "destroy_agent": &l.destroyAgent,
		"get_local_md": &l.getLocalMD, "load_remote_md": &l.loadRemoteMD, "invalidate_remote_md": &l.invalidateRemoteMD,
		"create_params": &l.createParams, "params_add": &l.paramsAdd, "destroy_params": &l.destroyParams,
		"get_available_plugins": &l.getPlugins, "string_list_size": &l.listSize, "string_list_get": &l.listGet,
		"destroy_string_list": &l.destroyList, "create_backend": &l.createBackend, "destroy_backend": &l.destroyBackend,
		"create_opt_args": &l.createOptions, "opt_args_add_backend": &l.optionsAddBackend, "destroy_opt_args": &l.freeOptions,
		"create_reg_dlist": &l.createReg, "reg_dlist_add_desc": &l.regAdd, "destroy_reg_dlist": &l.destroyReg,
		"register_mem": &l.registerMem, "deregister_mem": &l.deregisterMem,
		"create_xfer_dlist": &l.createXfer, "xfer_dlist_add_desc": &l.xferAdd, "destroy_xfer_dlist": &l.destroyXfer,
		"create_xfer_req": &l.createReq, "post_xfer_req": &l.post, "get_xfer_status": &l.status,
		"release_xfer_req": &l.release, "destroy_xfer_req": &l.destroyReq,
	}
}

// Load opens the library at path, which may be a bare name for the loader to find. Env is set for the C side first,
// where it isn't set already: the library reads it while it is being opened. All missing symbols are one error.
func Load(path string, env map[string]string) (*Library, error) {
	if err := setenv(env); err != nil {
		return nil, err
	}
	h, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	l := &Library{}
	var missing []string
	for name, at := range l.symbols() {
		if *at, err = purego.Dlsym(h, "nixl_capi_"+name); err != nil {
			missing = append(missing, "nixl_capi_"+name)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s lacks %d functions: %s", path, len(missing), strings.Join(slices.Sorted(slices.Values(missing)), ", "))
	}
	if l.free, err = purego.Dlsym(purego.RTLD_DEFAULT, "free"); err != nil {
		return nil, fmt.Errorf("find free of the C library: %w", err)
	}
	if r, _, _ := purego.SyscallN(l.isStub); r&0xff != 0 {
		return nil, fmt.Errorf("%s: %w", path, ErrStub)
	}
	return l, nil
}

// setenv sets what isn't set in the C environment, which a program without cgo doesn't share with package os.
func setenv(env map[string]string) error {
	if len(env) == 0 {
		return nil
	}
	fn, err := purego.Dlsym(purego.RTLD_DEFAULT, "setenv")
	if err != nil {
		return fmt.Errorf("find setenv of the C library: %w", err)
	}
	for k, v := range env {
		ck, err := cstring(k)
		if err != nil {
			return err
		}
		cv, err := cstring(v)
		if err != nil {
			return err
		}
		const keep = 0 // what the operator set wins
		purego.SyscallN(fn, uintptr(unsafe.Pointer(&ck[0])), uintptr(unsafe.Pointer(&cv[0])), keep)
	}
	return nil
}

// cstring is s with its end marked.
func cstring(s string) ([]byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, fmt.Errorf("%q: %w", s, ErrNUL)
	}
	return append([]byte(s), 0), nil
}

// gostring copies a C string of at most limit bytes.
func gostring(p uintptr, limit int) string {
	if p == 0 {
		return ""
	}
	var b []byte
	for i := range limit {
		c := *(*byte)(pointer(p + uintptr(i)))
		if c == 0 {
			break
		}
		b = append(b, c)
	}
	return string(b)
}

// pointer makes an address of C memory a pointer. The detour keeps vet from taking it for arithmetic on Go memory.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }

func status(r uintptr) Status { return Status(int32(r)) }

// call makes a call whose result is a status.
//
//go:uintptrescapes
func call(fn uintptr, args ...uintptr) Status {
	r, _, _ := purego.SyscallN(fn, args...)
	return status(r)
}

// drop makes a call whose answer can't be acted upon: it frees something that is there.
func drop(fn, arg uintptr) { _, _, _ = purego.SyscallN(fn, arg) }

// agentConfig is the C struct: 40 bytes on both architectures.
type agentConfig struct {
	progress, listen bool
	_                [2]byte
	port             int32
	sync             int32
	workers          uint32
	progressDelay    uint64
	listenDelay      uint64
	telemetry        bool
	_                [7]byte
}

// NewAgent makes an agent.
func (l *Library) NewAgent(name string, c AgentConfig) (Agent, error) {
	cname, err := cstring(name)
	if err != nil {
		return 0, err
	}
	cfg := &agentConfig{progress: c.ProgressThread, sync: c.Sync, workers: 1, progressDelay: c.ProgressDelay}
	var a Agent
	err = call(l.createAgent, uintptr(unsafe.Pointer(&cname[0])), uintptr(unsafe.Pointer(cfg)), uintptr(unsafe.Pointer(&a))).err()
	return a, err
}

// DestroyAgent ends an agent and all that it has.
func (l *Library) DestroyAgent(a Agent) error { return call(l.destroyAgent, uintptr(a)).err() }

// maxMetadata bounds what the library may say of itself, in bytes.
const maxMetadata = 1 << 20

// LocalMetadata describes the agent and its registered memory to others.
func (l *Library) LocalMetadata(a Agent) ([]byte, error) {
	var p, n uintptr
	if err := call(l.getLocalMD, uintptr(a), uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&n))).err(); err != nil {
		return nil, err
	}
	defer drop(l.free, p)
	if p == 0 || n == 0 || n > maxMetadata {
		return nil, fmt.Errorf("metadata of %d bytes, 1 to %d expected", n, maxMetadata)
	}
	return append([]byte(nil), unsafe.Slice((*byte)(pointer(p)), n)...), nil
}

// LoadRemote takes in another agent's metadata and gives its name. It may block for minutes. The bytes must be known
// to be whole: the library doesn't survive all damage.
func (l *Library) LoadRemote(a Agent, md []byte) (string, error) {
	if len(md) == 0 || len(md) > maxMetadata {
		return "", fmt.Errorf("metadata of %d bytes, 1 to %d expected", len(md), maxMetadata)
	}
	var name uintptr
	err := call(l.loadRemoteMD, uintptr(a), uintptr(unsafe.Pointer(&md[0])), uintptr(len(md)), uintptr(unsafe.Pointer(&name))).err()
	if name != 0 {
		defer drop(l.free, name)
	}
	if err != nil {
		return "", err
	}
	return gostring(name, 1<<10), nil
}

// InvalidateRemote forgets another agent.
func (l *Library) InvalidateRemote(a Agent, name string) error {
	c, err := cstring(name)
	if err != nil {
		return err
	}
	return call(l.invalidateRemoteMD, uintptr(a), uintptr(unsafe.Pointer(&c[0]))).err()
}

// Plugins lists the plug-ins that the library finds.
func (l *Library) Plugins(a Agent) ([]string, error) {
	var list, n uintptr
	if err := call(l.getPlugins, uintptr(a), uintptr(unsafe.Pointer(&list))).err(); err != nil {
		return nil, err
	}
	defer drop(l.destroyList, list)
	if err := call(l.listSize, list, uintptr(unsafe.Pointer(&n))).err(); err != nil {
		return nil, err
	}
	var out []string
	for i := range n {
		var s uintptr // borrowed from the list
		if err := call(l.listGet, list, i, uintptr(unsafe.Pointer(&s))).err(); err != nil {
			return nil, err
		}
		out = append(out, gostring(s, 256))
	}
	return out, nil
}

// NewBackend starts a plug-in, and gives options that name it.
func (l *Library) NewBackend(a Agent, plugin string, params map[string]string) (Backend, Options, error) {
	cname, err := cstring(plugin)
	if err != nil {
		return 0, 0, err
	}
	p, err := l.newParams(params)
	if err != nil {
		return 0, 0, err
	}
	defer drop(l.destroyParams, uintptr(p))
	var b Backend
	if err := call(l.createBackend, uintptr(a), uintptr(unsafe.Pointer(&cname[0])), uintptr(p), uintptr(unsafe.Pointer(&b))).err(); err != nil {
		return 0, 0, err
	}
	var o Options
	if err := call(l.createOptions, uintptr(unsafe.Pointer(&o))).err(); err != nil {
		return b, 0, err
	}
	return b, o, call(l.optionsAddBackend, uintptr(o), uintptr(b)).err()
}

func (l *Library) newParams(params map[string]string) (Params, error) {
	var p Params
	if err := call(l.createParams, uintptr(unsafe.Pointer(&p))).err(); err != nil {
		return 0, err
	}
	for k, v := range params {
		ck, err := cstring(k)
		if err != nil {
			return p, err
		}
		cv, err := cstring(v)
		if err != nil {
			return p, err
		}
		if err := call(l.paramsAdd, uintptr(p), uintptr(unsafe.Pointer(&ck[0])), uintptr(unsafe.Pointer(&cv[0]))).err(); err != nil {
			return p, fmt.Errorf("set parameter %s: %w", k, err)
		}
	}
	return p, nil
}

// FreeBackend lets go of a backend's handles. The backend itself ends with its agent.
func (l *Library) FreeBackend(b Backend, o Options) {
	if o != 0 {
		drop(l.freeOptions, uintptr(o))
	}
	if b != 0 {
		drop(l.destroyBackend, uintptr(b))
	}
}

func (l *Library) regList(t MemType, d Desc) (RegList, error) {
	var list RegList
	if err := call(l.createReg, uintptr(t), uintptr(unsafe.Pointer(&list))).err(); err != nil {
		return 0, err
	}
	if err := call(l.regAdd, uintptr(list), uintptr(d.Addr), uintptr(d.Nbytes), uintptr(d.Device), 0, 0).err(); err != nil {
		drop(l.destroyReg, uintptr(list))
		return 0, err
	}
	return list, nil
}

// Register makes memory readable and writable for transfers.
func (l *Library) Register(a Agent, t MemType, d Desc, o Options) error {
	return l.withReg(t, d, func(list RegList) Status {
		return call(l.registerMem, uintptr(a), uintptr(list), uintptr(o))
	})
}

// Deregister undoes Register.
func (l *Library) Deregister(a Agent, t MemType, d Desc, o Options) error {
	return l.withReg(t, d, func(list RegList) Status {
		return call(l.deregisterMem, uintptr(a), uintptr(list), uintptr(o))
	})
}

func (l *Library) withReg(t MemType, d Desc, f func(RegList) Status) error {
	list, err := l.regList(t, d)
	if err != nil {
		return err
	}
	defer drop(l.destroyReg, uintptr(list))
	return f(list).err()
}

// NewXferList makes a list of runs, in order. It costs one call for each run.
func (l *Library) NewXferList(t MemType, descs []Desc) (XferList, error) {
	var list XferList
	if err := call(l.createXfer, uintptr(t), uintptr(unsafe.Pointer(&list))).err(); err != nil {
		return 0, err
	}
	for i := range descs {
		d := &descs[i]
		if err := call(l.xferAdd, uintptr(list), uintptr(d.Addr), uintptr(d.Nbytes), uintptr(d.Device)).err(); err != nil {
			l.FreeXferList(list)
			return 0, err
		}
	}
	return list, nil
}

// FreeXferList frees a list; requests made of it live on.
func (l *Library) FreeXferList(list XferList) { drop(l.destroyXfer, uintptr(list)) }

// NewRead makes a request that reads the remote runs into the local ones, pairwise.
func (l *Library) NewRead(a Agent, local, remote XferList, from string, o Options) (Request, error) {
	c, err := cstring(from)
	if err != nil {
		return 0, err
	}
	const read = 0
	var r Request
	err = call(l.createReq, uintptr(a), read, uintptr(local), uintptr(remote),
		uintptr(unsafe.Pointer(&c[0])), uintptr(unsafe.Pointer(&r)), uintptr(o)).err()
	return r, err
}

// Post starts a request: Success means that it has ended already.
func (l *Library) Post(a Agent, r Request) Status { return call(l.post, uintptr(a), uintptr(r), 0) }

// Status asks how a posted request stands.
func (l *Library) Status(a Agent, r Request) Status { return call(l.status, uintptr(a), uintptr(r)) }

// Free releases and destroys a request that isn't in progress.
func (l *Library) Free(a Agent, r Request) error {
	if err := call(l.release, uintptr(a), uintptr(r)).err(); err != nil {
		return err
	}
	return call(l.destroyReq, uintptr(r)).err()
}
