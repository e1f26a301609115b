# syntax=docker/dockerfile:1
# One image with all three programs: publisher, receiver, refitctl.

ARG GO_VERSION=1.26.8
ARG DEBIAN=trixie

FROM golang:${GO_VERSION}-${DEBIAN} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOFLAGS=-buildvcs=false
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY cmd ./cmd
COPY internal ./internal
COPY pkg ./pkg
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -ldflags="-s -w" -o /out/ ./cmd/...

# A glibc image, not scratch or Alpine: the programs need no C compiler to build, but they are dynamic, because the
# NIXL library is opened at run time, and that library is built for glibc.
FROM debian:${DEBIAN}-slim
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
# A named volume takes the owner of the folder that it first covers.
RUN useradd --uid 10001 --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin drydock \
    && install -d -o drydock -g drydock /var/lib/drydock
COPY --from=build /out/ /usr/local/bin/
USER 10001:10001
WORKDIR /var/lib/drydock
STOPSIGNAL SIGTERM
CMD ["refitctl", "--help"]
