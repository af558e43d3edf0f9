//! In place of `replicate`, without the feature `replication`: no process leads a replicated log, so there is nothing that could be called.

use std::time::Duration;

use crate::at::At;
use crate::error::Result;
use crate::image::Image;

/// Never made.
pub(crate) enum Leading {}

impl Leading {
    pub(crate) fn check(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn check_leading(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn all_know_head(&self, _: u64) -> bool {
        match *self {}
    }

    pub(crate) fn post_head(&self, _: At) {
        match *self {}
    }

    pub(crate) fn await_head(&self, _: &Image, _: At) -> Result<()> {
        match *self {}
    }

    pub(crate) fn post(&self, _: &Image) -> Result<()> {
        match *self {}
    }

    pub(crate) fn flush_own(&self, _: &Image) -> Result<()> {
        match *self {}
    }

    pub(crate) fn force(&self, _: &Image, _: u64, _: Duration) -> Result<()> {
        match *self {}
    }

    pub(crate) fn force_own(&self, _: &Image, _: u64, _: Duration) -> Result<bool> {
        match *self {}
    }

    pub(crate) fn close(&self) {
        match *self {}
    }
}
