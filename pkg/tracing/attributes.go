package tracing

import "go.opentelemetry.io/otel/attribute"

// Attribute keys of Drydock's spans. Keys that OpenTelemetry defines (messaging.*,
// error.type, service.*) are used under their own names beside these.
const (
	AttrModel     = attribute.Key("drydock.model")
	AttrBackend   = attribute.Key("drydock.backend")
	AttrRun       = attribute.Key("drydock.run")
	AttrVersion   = attribute.Key("drydock.version")
	AttrRank      = attribute.Key("drydock.rank")
	AttrWorld     = attribute.Key("drydock.world")
	AttrTPRank    = attribute.Key("drydock.tp.rank")
	AttrTPSize    = attribute.Key("drydock.tp.size")
	AttrEPRank    = attribute.Key("drydock.ep.rank")
	AttrEPSize    = attribute.Key("drydock.ep.size")
	AttrStage     = attribute.Key("drydock.stage")
	AttrOutcome   = attribute.Key("drydock.outcome")
	AttrSource    = attribute.Key("drydock.source.rank") // trainer rank that is read
	AttrTransport = attribute.Key("drydock.transport")
	AttrSegments  = attribute.Key("drydock.segments") // count
	AttrBytes     = attribute.Key("drydock.bytes")
	AttrRetries   = attribute.Key("drydock.retries") // count
	AttrBusy      = attribute.Key("drydock.busy_ms") // of a stage done in pieces: how long it worked

	attrCount    = attribute.Key("drydock.aggregate.count")
	attrErrors   = attribute.Key("drydock.aggregate.errors")
	attrSlowest  = attribute.Key("drydock.aggregate.max_ms")
	attrFastest  = attribute.Key("drydock.aggregate.min_ms")
	attrBusy     = attribute.Key("drydock.aggregate.busy_ms") // sum of durations
	attrErrType  = attribute.Key("error.type")
	metadataSize = "bytes" // key of the bytes in a stage's metadata
)

// Event names on spans.
const (
	EventRetry      = "drydock.retry"
	EventBreaker    = "drydock.breaker"
	EventLease      = "drydock.lease"
	EventSuperseded = "drydock.superseded"
	EventSkipped    = "drydock.skipped"
)
