package controller

import (
	"os"
	"testing"

	"github.com/mbcas/mbcas/internal/testing/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Main(m)) }
