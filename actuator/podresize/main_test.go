package podresize_test

import (
	"os"
	"testing"

	"github.com/mbcas/mbcas/internal/apitest"
)

func TestMain(m *testing.M) { os.Exit(apitest.Main(m)) }
