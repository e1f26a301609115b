// Package httpcall is the installer that makes a list of HTTP calls, for engines whose update is a matter of a few
// requests. A step is one call and what its answer must be; the steps of a version run in order:
//
//	steps:
//	  - name: pause
//	    url: http://127.0.0.1:8101/pause?mode=keep
//	    pause: begin
//	    on_failure: [{name: resume, url: "http://127.0.0.1:8101/resume", idempotent: true}]
//	  - name: reload
//	    url: http://127.0.0.1:8101/collective_rpc
//	    body: '{"method":"reload_weights","kwargs":{"weights_path":{{json .Dir}}}}'
//	    changes: true
//	    timeout: 60s
//	  - name: resume
//	    url: http://127.0.0.1:8101/resume
//	    idempotent: true
//	    pause: end
//
// URL, body and header values are templates of install.Vars.
//
// When a step fails, the on_failure steps of it and of those before it run, the last first, each whatever the others do.
// The error's class follows from how far it got. It is unknown when one of those undoing steps failed, or when a step
// that changes weights was sent and has no undoing steps of its own; else unreachable when nobody answered, and refused
// when somebody did.
//
// Only idempotent steps are tried again, and only when nobody answered or a server in between said so (429, 502, 503, 504).
// Redirects are answers like others; they are not followed.
package httpcall
