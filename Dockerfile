# Images for users with a container engine:
#   docker build --target agent -t REGISTRY/agent:TAG .
#   docker build --target controller -t REGISTRY/controller:TAG .
#   docker build --target weights -t REGISTRY/weights:TAG .
# The plugin and the chart look for these names.
# `make images` builds the same programs into archives without an engine.
ARG GO_IMAGE=golang:1.26
ARG BASE_IMAGE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS TARGETARCH VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath \
    -ldflags "-s -w -X main.version=${VERSION}" -o /out/ ./cmd/mbcas-agent ./cmd/mbcas-controller ./cmd/mbcas-weights

FROM ${BASE_IMAGE} AS agent
COPY --from=build /out/mbcas-agent /mbcas-agent
USER 65532:65532
ENTRYPOINT ["/mbcas-agent"]

FROM ${BASE_IMAGE} AS controller
COPY --from=build /out/mbcas-controller /mbcas-controller
USER 65532:65532
ENTRYPOINT ["/mbcas-controller"]

FROM ${BASE_IMAGE} AS weights
COPY --from=build /out/mbcas-weights /mbcas-weights
USER 0:0
ENTRYPOINT ["/mbcas-weights"]
