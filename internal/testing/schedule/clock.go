package schedule

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/mbcas/mbcas/internal/testing/faults"
	"github.com/mbcas/mbcas/internal/testing/memapi"
)

// clock is the wall clock of a node. Its agent runs by the clock of the test, as it measures how long things take
// by one that does not jump; so all dates that it writes are shifted on their way out, and those that it reads on
// their way in.
type clock struct {
	next  http.RoundTripper
	ahead atomic.Int64
}

// dated are the dates in JSON.
var dated = regexp.MustCompile(`"(renewTime|acquireTime|observedAt)":"([^"]+)"`)

// binary reads and writes what agents send as protobuf: their Leases.
var binary = protobuf.NewSerializer(memapi.Scheme, memapi.Scheme)

// shifted is a body with its dates shifted.
func shifted(body io.ReadCloser, by time.Duration) (io.ReadCloser, int64, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, 0, err
	}
	_ = body.Close()
	if bytes.HasPrefix(text, []byte("k8s\x00")) {
		text, err = shiftedLease(text, by)
	} else {
		text = dated.ReplaceAllFunc(text, func(field []byte) []byte {
			parts := dated.FindSubmatch(field)
			at, err := time.Parse(time.RFC3339Nano, string(parts[2]))
			if err != nil {
				return field
			}
			return []byte(`"` + string(parts[1]) + `":"` + at.Add(by).Format("2006-01-02T15:04:05.000000Z07:00") + `"`)
		})
	}
	return io.NopCloser(bytes.NewReader(text)), int64(len(text)), err
}

// shiftedLease is a body in protobuf; where it is a Lease, with its dates shifted.
func shiftedLease(body []byte, by time.Duration) ([]byte, error) {
	o, _, err := binary.Decode(body, nil, nil)
	if err != nil {
		return nil, err
	}
	lease, ok := o.(*coordinationv1.Lease)
	if !ok {
		return body, nil
	}
	for _, t := range []*metav1.MicroTime{lease.Spec.RenewTime, lease.Spec.AcquireTime} {
		if t != nil {
			t.Time = t.Add(by)
		}
	}
	var b bytes.Buffer
	err = binary.Encode(lease, &b)
	return b.Bytes(), err
}

// RoundTrip implements http.RoundTripper.
func (c *clock) RoundTrip(q *http.Request) (response *http.Response, err error) {
	ahead := time.Duration(c.ahead.Load())
	if ahead == 0 || faults.CallOf(q).Watch { // no date is in what agents watch
		return c.next.RoundTrip(q)
	}
	if q.Body != nil {
		q = q.Clone(q.Context())
		if q.Body, q.ContentLength, err = shifted(q.Body, ahead); err != nil {
			return nil, err
		}
	}
	if response, err = c.next.RoundTrip(q); err == nil {
		response.Body, response.ContentLength, err = shifted(response.Body, -ahead)
	}
	return response, err
}
