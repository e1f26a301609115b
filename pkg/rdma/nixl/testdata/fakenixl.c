// A stand-in for libnixl_capi with the same functions and the same rules, for agents of one process: conformance runs
// over it where the real library isn't, and failures that the real one can't be brought to show are asked of it.
//
// The backend's parameter "fake" chooses what a read does:
//   sync   (default) ends inside the post      async  ends at the third status call
//   stuck  never ends                          fail   brings half of the bytes, then fails
// -DSTUB makes the placeholder that is installed without the library, -DMISSING leaves functions out.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_PARAM = -1, BACKEND = -2, INVALID_STATE = -3, NOT_FOUND = -6, IN_PROG = 1 };
enum { SYNC, ASYNC, STUCK, FAIL };
#define MAX 4096

struct desc { uintptr_t addr; size_t len; uint64_t dev; };
struct list { size_t n, cap; struct desc *d; };
struct agent { char name[128]; int mode; struct list regs; int used; };
struct params { int mode; };
struct req { struct agent *a; struct list local, remote; int mode, polls, state; };

static struct agent *agents[MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool nixl_capi_is_stub(void) {
#ifdef STUB
	return true;
#else
	return false;
#endif
}

int nixl_capi_create_configured_agent(const char *name, const void *cfg, struct agent **out) {
	const struct { bool progress, listen; int port, sync; } *c = cfg;
	if ((!c->progress && c->sync != 1) || strlen(name) >= sizeof(*out)->name) return INVALID_PARAM;
	struct agent *a = calloc(1, sizeof *a);
	strcpy(a->name, name);
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX; i++)
		if (!agents[i]) { agents[i] = a; break; }
	pthread_mutex_unlock(&lock);
	*out = a;
	return OK;
}

int nixl_capi_destroy_agent(struct agent *a) {
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX; i++)
		if (agents[i] == a) agents[i] = NULL;
	pthread_mutex_unlock(&lock);
	free(a->regs.d);
	free(a);
	return OK;
}

static struct agent *find(const char *name) {
	for (int i = 0; i < MAX; i++)
		if (agents[i] && !strcmp(agents[i]->name, name)) return agents[i];
	return NULL;
}

int nixl_capi_get_local_md(struct agent *a, void **data, size_t *len) {
	*len = strlen(a->name);
	*data = strdup(a->name);
	return OK;
}

int nixl_capi_load_remote_md(struct agent *a, const void *data, size_t len, char **name) {
	(void)a;
	char *n = strndup(data, len);
	pthread_mutex_lock(&lock);
	struct agent *r = find(n);
	pthread_mutex_unlock(&lock);
	if (!r) { free(n); return BACKEND; }
	*name = n;
	return OK;
}

int nixl_capi_invalidate_remote_md(struct agent *a, const char *name) { (void)a; (void)name; return OK; }

int nixl_capi_create_params(struct params **p) { *p = calloc(1, sizeof **p); return OK; }
int nixl_capi_destroy_params(struct params *p) { free(p); return OK; }
int nixl_capi_params_add(struct params *p, const char *k, const char *v) {
	if (!strcmp(k, "fake"))
		p->mode = !strcmp(v, "async") ? ASYNC : !strcmp(v, "stuck") ? STUCK : !strcmp(v, "fail") ? FAIL : SYNC;
	return OK;
}

int nixl_capi_get_available_plugins(struct agent *a, void **list) { (void)a; *list = malloc(1); return OK; }
int nixl_capi_string_list_size(void *list, size_t *n) { (void)list; *n = 1; return OK; }
int nixl_capi_string_list_get(void *list, size_t i, const char **s) { (void)list; (void)i; *s = "FAKE"; return OK; }
int nixl_capi_destroy_string_list(void *list) { free(list); return OK; }

int nixl_capi_create_backend(struct agent *a, const char *plugin, struct params *p, void **b) {
	if (!strcmp(plugin, "MISSING")) return NOT_FOUND;
	a->mode = p->mode;
	*b = malloc(1);
	return OK;
}
int nixl_capi_destroy_backend(void *b) { free(b); return OK; }
int nixl_capi_create_opt_args(void **o) { *o = malloc(1); return OK; }
int nixl_capi_opt_args_add_backend(void *o, void *b) { (void)o; (void)b; return OK; }
int nixl_capi_destroy_opt_args(void *o) { free(o); return OK; }

static int new_list(int type, struct list **l) { if (type > 1) return INVALID_PARAM; *l = calloc(1, sizeof **l); return OK; }
static int add(struct list *l, uintptr_t addr, size_t len, uint64_t dev) {
	if (l->n == l->cap) {
		l->cap = l->cap ? 2 * l->cap : 8;
		l->d = realloc(l->d, l->cap * sizeof *l->d);
	}
	l->d[l->n++] = (struct desc){addr, len, dev};
	return OK;
}
static int free_list(struct list *l) { free(l->d); free(l); return OK; }

int nixl_capi_create_reg_dlist(int type, struct list **l) { return new_list(type, l); }
int nixl_capi_reg_dlist_add_desc(struct list *l, uintptr_t addr, size_t len, uint64_t dev, const void *md, size_t n) {
	(void)md; (void)n;
	return add(l, addr, len, dev);
}
int nixl_capi_destroy_reg_dlist(struct list *l) { return free_list(l); }
int nixl_capi_create_xfer_dlist(int type, struct list **l) { return new_list(type, l); }
int nixl_capi_xfer_dlist_add_desc(struct list *l, uintptr_t addr, size_t len, uint64_t dev) { return add(l, addr, len, dev); }
int nixl_capi_destroy_xfer_dlist(struct list *l) { return free_list(l); }

int nixl_capi_register_mem(struct agent *a, struct list *l, void *o) {
	(void)o;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < l->n; i++) add(&a->regs, l->d[i].addr, l->d[i].len, l->d[i].dev);
	pthread_mutex_unlock(&lock);
	return OK;
}

int nixl_capi_deregister_mem(struct agent *a, struct list *l, void *o) {
	(void)o;
	int ret = NOT_FOUND;
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < a->regs.n; i++)
		if (a->regs.d[i].addr == l->d[0].addr && a->regs.d[i].len == l->d[0].len) {
			a->regs.d[i] = a->regs.d[--a->regs.n];
			ret = OK;
			break;
		}
	pthread_mutex_unlock(&lock);
	return ret;
}

static bool covered(struct list *regs, struct desc *d) {
	for (size_t i = 0; i < regs->n; i++)
		if (d->addr >= regs->d[i].addr && d->addr + d->len <= regs->d[i].addr + regs->d[i].len && d->dev == regs->d[i].dev) return true;
	return false;
}

static struct list copy_list(struct list *l) {
	struct list c = {0};
	for (size_t i = 0; i < l->n; i++) add(&c, l->d[i].addr, l->d[i].len, l->d[i].dev);
	return c;
}

int nixl_capi_create_xfer_req(struct agent *a, int op, struct list *local, struct list *remote, const char *name, struct req **out, void *o) {
	(void)o;
	if (op != 0 || local->n != remote->n) return INVALID_PARAM;
	int ret = OK;
	pthread_mutex_lock(&lock);
	struct agent *r = find(name);
	if (!r) ret = BACKEND;
	for (size_t i = 0; !ret && i < local->n; i++)
		if (local->d[i].len != remote->d[i].len || !covered(&a->regs, &local->d[i]) || !covered(&r->regs, &remote->d[i])) ret = BACKEND;
	pthread_mutex_unlock(&lock);
	if (ret) return ret;
	struct req *q = calloc(1, sizeof *q);
	q->a = a; q->local = copy_list(local); q->remote = copy_list(remote); q->mode = a->mode; q->state = INVALID_STATE;
	*out = q;
	return OK;
}

static void move(struct req *q, size_t n) {
	for (size_t i = 0; i < n; i++) memcpy((void *)q->local.d[i].addr, (void *)q->remote.d[i].addr, q->local.d[i].len);
}

int nixl_capi_post_xfer_req(struct agent *a, struct req *q, void *o) {
	(void)a; (void)o;
	if (q->mode == SYNC) { move(q, q->local.n); return q->state = OK; }
	return q->state = IN_PROG;
}

int nixl_capi_get_xfer_status(struct agent *a, struct req *q) {
	(void)a;
	if (q->state != IN_PROG || q->mode == STUCK || ++q->polls < 3) return q->state;
	move(q, q->mode == FAIL ? q->local.n / 2 : q->local.n);
	return q->state = q->mode == FAIL ? BACKEND : OK;
}

#ifndef MISSING
int nixl_capi_release_xfer_req(struct agent *a, struct req *q) {
	(void)a;
	if (q->state == IN_PROG) return INVALID_STATE;
	free(q->local.d); free(q->remote.d);
	q->local.d = q->remote.d = NULL;
	return OK;
}

int nixl_capi_destroy_xfer_req(struct req *q) { free(q); return OK; }
#endif
