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
	AttrRetries   = attribute.Key("drydock.retries")     // count
	AttrRetryHow  = attribute.Key("drydock.retry.how")   // again, or from replicas
	AttrErrorType = attribute.Key("error.type")          // OpenTelemetry's own; of Drydock, the failure's class
	AttrStandIns  = attribute.Key("drydock.stand_ins")   // trainer ranks that were read in place of the source
	AttrBusy      = attribute.Key("drydock.busy_ms")     // of a stage done in pieces: how long it worked
	AttrLease     = attribute.Key("drydock.lease.state") // acquired, released or lost
	AttrSkipped   = attribute.Key("drydock.skipped")     // versions that were superseded before anybody looked at them

	attrCount    = attribute.Key("drydock.aggregate.count")
	attrErrors   = attribute.Key("drydock.aggregate.errors")
	attrSlowest  = attribute.Key("drydock.aggregate.max_ms")
	attrFastest  = attribute.Key("drydock.aggregate.min_ms")
	attrBusy     = attribute.Key("drydock.aggregate.busy_ms") // sum of durations
	metadataSize = "bytes"                                    // key of the bytes in a stage's metadata
)

// Event names on spans.
const (
	EventRetry      = "drydock.retry"      // a batch is read again; on wire_transfer
	EventBreaker    = "drydock.breaker"    // a source is left alone, probed or read again; on wire_transfer
	EventLease      = "drydock.lease"      // a lease was acquired (on control_discovery), released or lost (on the phase)
	EventSuperseded = "drydock.superseded" // the cycle's version was overtaken, withdrawn or fenced; on the cycle
	EventSkipped    = "drydock.skipped"    // older versions were never looked at; on the cycle
)
