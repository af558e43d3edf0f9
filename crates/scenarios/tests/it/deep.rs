//! The slowest ones, which take two thirds of the time of all: `make test-deep` runs them, `make test` leaves them out by the
//! name of this module.

macro_rules! tests {
    ($($name:ident = $run:path;)*) => {$(
        #[test]
        fn $name() {
            $run();
        }
    )*};
}

tests! {
    each_step_of_kv_is_missed_when_it_is_left_out = crate::kv::each_step_is_missed_when_it_is_left_out;
    each_step_of_log_is_missed_when_it_is_left_out = crate::log::each_step_is_missed_when_it_is_left_out;
    each_step_of_mars_is_missed_when_it_is_left_out = crate::mars::each_step_is_missed_when_it_is_left_out;
    each_step_of_aries_is_missed_when_it_is_left_out = crate::aries::each_step_is_missed_when_it_is_left_out;
    every_barrier_of_heap_is_missed_when_it_is_gone = crate::heap_mutation::every_barrier_of_the_heap_is_missed_when_it_is_gone;
    every_barrier_of_aries_is_missed_when_it_is_gone = crate::aries::every_barrier_is_missed_when_it_is_gone;
    who_takes_a_frame_of_aries_asks_again = crate::aries::who_takes_a_frame_asks_again;
    each_step_of_mvcc_is_missed_when_it_is_left_out = crate::versioned::in_turns::each_step_is_missed_when_it_is_left_out;
    every_barrier_of_mvcc_is_missed_when_it_is_gone = crate::versioned::every_barrier_is_missed_when_it_is_gone;
    every_barrier_of_kv_is_missed_when_it_is_gone = crate::kv::every_barrier_of_the_store_is_missed_when_it_is_gone;
    every_barrier_of_the_objects_is_missed_when_it_is_gone = crate::mutation::every_barrier_is_missed_when_it_is_gone;
    failing_drains = crate::failing_drains;
    killed_in_front_of_flushes = crate::killed_in_front_of_flushes;
    every_step_of_a_chain_is_missed_when_it_is_left_out = crate::chain::every_step_of_a_medium_is_missed;
    every_barrier_of_a_chain_is_missed_when_it_is_gone = crate::chain::every_barrier_of_a_chain_is_missed;
    a_hundred_thousand_damaged_pools = crate::damage::a_hundred_thousand_damaged_pools;
}
